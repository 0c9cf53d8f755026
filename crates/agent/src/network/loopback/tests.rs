//! Raw HTTP through a loopback port, to a server that shows what reaches it.

use std::collections::BTreeSet;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use super::*;

fn own_user() -> Users {
    Users::Only(BTreeSet::from([rustix::process::getuid().as_raw()]))
}

fn table() -> Option<ConnectionTable> {
    Some(ConnectionTable::open().unwrap())
}

/// A server that answers each connection by a function of the head of its request.
async fn backend(answer: fn(&str) -> &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).await.unwrap() > 0 {}
                stream.write_all(answer(&head)).await.unwrap();
                // Whatever follows an upgrade comes back.
                let mut bytes = [0; 64];
                while let Ok(read @ 1..) = stream.read(&mut bytes).await {
                    stream.write_all(&bytes[..read]).await.unwrap();
                }
            });
        }
    });
    address
}

fn open_port(access: Access, target: Option<SocketAddr>) -> SocketAddr {
    open_port_for(Protocol::Http, access, target)
}

fn open_port_for(protocol: Protocol, access: Access, target: Option<SocketAddr>) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, protocol, Arc::new(access), move || target));
    address
}

/// Sends a request and returns the response up to the end of the connection.
async fn send(port: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(port).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";

#[tokio::test]
async fn own_requests_by_a_name_of_loopback_are_forwarded() {
    let target = backend(|head| if head.starts_with("GET /x?y=z HTTP/1.1\r\n") { OK } else { b"" }).await;
    let port = open_port(
        Access { guard: Guard { users: own_user(), ..Guard::default() }, connections: table() },
        Some(target),
    );
    let answer = send(port, "GET /x?y=z HTTP/1.1\r\nHost: localhost:8265\r\nConnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("\r\n\r\nhi"), "{answer}");
}

#[tokio::test]
async fn every_request_of_a_connection_is_checked() {
    let target = backend(|_| OK).await;
    let port = open_port(
        Access { guard: Guard { users: own_user(), ..Guard::default() }, connections: table() },
        Some(target),
    );
    let first = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    let second = "GET / HTTP/1.1\r\nHost: evil.example:8265\r\nConnection: close\r\n\r\n";
    let answer = send(port, &format!("{first}{second}")).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.contains("HTTP/1.1 403 Forbidden") && answer.contains("--allow-host NAME"), "{answer}");
}

#[tokio::test]
async fn other_users_are_refused_and_told_how_to_be_allowed() {
    let target = backend(|_| OK).await;
    let request = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    // Root is always let in, so its tests have nobody to refuse but the unknown.
    let nobody = Guard { users: Users::Only(BTreeSet::new()), ..Guard::default() };
    let is_root = rustix::process::getuid().is_root();
    let port = open_port(Access { guard: nobody, connections: if is_root { None } else { table() } }, Some(target));
    let answer = send(port, request).await;
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden"), "{answer}");
    let everybody = Guard { users: Users::All, ..Guard::default() };
    let port = open_port(Access { guard: everybody, connections: None }, Some(target));
    assert!(send(port, request).await.starts_with("HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn other_protocols_are_forwarded_for_the_same_users() {
    let target = backend(|_| b"anything").await;
    let request = "no HTTP\r\n\r\n";
    let known = Access { guard: Guard { users: own_user(), ..Guard::default() }, connections: table() };
    let mut stream = TcpStream::connect(open_port_for(Protocol::Tcp, known, Some(target))).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"anything");
    let unknown = Access { guard: Guard { users: own_user(), ..Guard::default() }, connections: None };
    let mut stream = TcpStream::connect(open_port_for(Protocol::Tcp, unknown, Some(target))).await.unwrap();
    assert_eq!(stream.read(&mut answer).await.unwrap_or(0), 0, "closed");
}

#[tokio::test]
async fn upgraded_connections_carry_bytes_both_ways() {
    let target = backend(|head| {
        assert!(head.contains("Upgrade: websocket\r\n"), "{head}");
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    })
    .await;
    let port = open_port(
        Access { guard: Guard { users: own_user(), ..Guard::default() }, connections: table() },
        Some(target),
    );
    let mut stream = BufReader::new(TcpStream::connect(port).await.unwrap());
    let request = "GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(stream.read_line(&mut head).await.unwrap() > 0, "{head}");
    }
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    stream.write_all(b"ping").await.unwrap();
    let mut echo = [0; 4];
    stream.read_exact(&mut echo).await.unwrap();
    assert_eq!(&echo, b"ping");
}

#[tokio::test]
async fn responses_are_passed_on_while_they_are_written() {
    // The response never ends; its first part has to arrive all the same.
    let target = backend(|_| b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n").await;
    let port = open_port(
        Access { guard: Guard { users: own_user(), ..Guard::default() }, connections: table() },
        Some(target),
    );
    let mut stream = BufReader::new(TcpStream::connect(port).await.unwrap());
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut seen = String::new();
    while !seen.contains("first") {
        assert!(stream.read_line(&mut seen).await.unwrap() > 0, "{seen}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_reported() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let request = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let access = || Access { guard: Guard { users: own_user(), ..Guard::default() }, connections: table() };
    assert!(send(open_port(access(), Some(closed)), request).await.starts_with("HTTP/1.1 502"));
    assert!(send(open_port(access(), None), request).await.starts_with("HTTP/1.1 503"));
}
