//! Development server.
use manta_apiserver::{Options, Server, tls};
#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let kubeconfig = args.next().expect("kubeconfig");
    let port: u16 = args.next().map_or(0, |p| p.parse().expect("port"));
    let data = args.next().map(Into::into);
    let listener = std::net::TcpListener::bind(("127.0.0.1", port)).expect("bind");
    let server = Server::start(Options {
        data,
        rbac: std::env::var("RBAC").is_ok(),
        admit_service_accounts: std::env::var("SA").is_ok(),
        volumes: std::env::var("VOLUMES").ok().map(Into::into),
        ..Options::default()
    })
    .await
    .expect("start");
    let address = server.listen(listener).expect("listen");
    tls::write_secret(kubeconfig.as_ref(), &server.kubeconfig(&format!("https://{address}"))).expect("kubeconfig");
    tokio::signal::ctrl_c().await.expect("signal");
    server.stop().await;
}
