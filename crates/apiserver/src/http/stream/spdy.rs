//! SPDY/3.1, as far as Kubernetes needs it: frames between bytes and values.
//!
//! ```text
//!   control  1|version 3 (15)|type (16)   flags (8)|length (24)   content
//!   data     0|stream (31)                flags (8)|length (24)   content
//! ```
//!
//! Headers are compressed with a dictionary that both sides know, in one zlib stream per direction for the whole
//! connection. What we send needs no compression: stored blocks are valid zlib.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::{
    TINFL_FLAG_HAS_MORE_INPUT, TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF as ONE_BUFFER,
};
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

const CONTROL: u32 = 0x8003_0000;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;
const FIN: u8 = 1;
/// The largest frame that is read, and the most that one block of headers may grow to.
const FRAME_LIMIT: usize = 1 << 20;
const HEADERS_LIMIT: usize = 64 << 10;
/// How far back compressed data may refer.
const WINDOW: usize = 32 << 10;

/// The header names of the dictionary, each preceded by its length; see section 2.6.10.1 of the SPDY/3 draft.
const DICTIONARY_NAMES: &str = "options head post put delete trace accept accept-charset accept-encoding \
    accept-language accept-ranges age allow authorization cache-control connection content-base content-encoding \
    content-language content-length content-location content-md5 content-range content-type date etag expect expires \
    from host if-match if-modified-since if-none-match if-range if-unmodified-since last-modified location \
    max-forwards pragma proxy-authenticate proxy-authorization range referer retry-after server te trailer \
    transfer-encoding upgrade user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 \
    url public set-cookie keep-alive origin";
/// The end of the dictionary: frequent values.
const DICTIONARY_VALUES: &str = "1001012012022052063003023033043053063074024054064074084094104114124134144154164175\
    02504505203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 \
    Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun \
    Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,\
    image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,\
    sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

/// A protocol error.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not SPDY/3.1: {0}")]
pub(super) struct Malformed(&'static str);

/// A message from the client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// Opens a stream; with `fin` the client will send nothing on it.
    Open { stream: u32, fin: bool, headers: Vec<(String, String)> },
    /// Bytes; with `fin` the last ones.
    Data { stream: u32, fin: bool, bytes: Bytes },
    /// Resets a stream.
    Reset { stream: u32 },
    /// A ping.
    Ping(u32),
    /// Opens no more streams.
    GoAway,
    /// A frame that is ignored.
    Other,
}

/// The frame decoder.
pub(super) struct Decoder {
    buffer: BytesMut,
    headers: HeaderReader,
}

impl Decoder {
    pub(super) fn new() -> Decoder {
        Decoder { buffer: BytesMut::new(), headers: HeaderReader::new() }
    }

    /// Adds received bytes.
    pub(super) fn feed(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// Returns the next complete frame.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, Malformed> {
        let Some(mut head) = self.buffer.get(..8) else { return Ok(None) };
        let (first, second) = (head.get_u32(), head.get_u32());
        let (flags, length) = ((second >> 24) as u8, (second & 0x00ff_ffff) as usize);
        if length > FRAME_LIMIT {
            return Err(Malformed("a frame is too long"));
        }
        if self.buffer.len() < 8 + length {
            return Ok(None);
        }
        self.buffer.advance(8);
        let content = self.buffer.split_to(length).freeze();
        if first & 0x8000_0000 == 0 {
            return Ok(Some(Frame::Data { stream: first, fin: flags & FIN != 0, bytes: content }));
        }
        if first & 0xffff_0000 != CONTROL {
            return Err(Malformed("another version"));
        }
        self.control(first as u16, flags, content).map(Some)
    }

    fn control(&mut self, kind: u16, flags: u8, mut content: Bytes) -> Result<Frame, Malformed> {
        let needed = match kind {
            SYN_STREAM => 10,
            SYN_REPLY | RST_STREAM | PING | HEADERS => 4,
            _ => 0,
        };
        if content.len() < needed {
            return Err(Malformed("a frame is too short"));
        }
        Ok(match kind {
            SYN_STREAM => {
                let stream = content.get_u32() & 0x7fff_ffff;
                // The stream it belongs to, its priority and a slot: nothing to us.
                content.advance(6);
                Frame::Open { stream, fin: flags & FIN != 0, headers: self.headers.read(&content)? }
            }
            SYN_REPLY | HEADERS => {
                content.advance(4);
                // Not needed, but the next headers refer back to these.
                self.headers.read(&content)?;
                Frame::Other
            }
            RST_STREAM => Frame::Reset { stream: content.get_u32() & 0x7fff_ffff },
            PING => Frame::Ping(content.get_u32()),
            GOAWAY => Frame::GoAway,
            _ => Frame::Other,
        })
    }
}

/// The client's headers, one zlib stream over all frames.
struct HeaderReader {
    begun: bool,
    inflater: Box<DecompressorOxide>,
    /// What compressed data may refer to: the dictionary, then earlier headers.
    window: Vec<u8>,
}

impl HeaderReader {
    fn new() -> HeaderReader {
        HeaderReader { begun: false, inflater: Box::default(), window: dictionary() }
    }

    fn read(&mut self, mut compressed: &[u8]) -> Result<Vec<(String, String)>, Malformed> {
        if !self.begun {
            // Two bytes of zlib, and four that name the dictionary if there is one.
            let skipped = match compressed {
                [_, flags, ..] if flags & 0x20 != 0 => 6,
                _ => 2,
            };
            compressed = compressed.get(skipped..).ok_or(Malformed("headers without a beginning"))?;
            self.begun = true;
        }
        let start = self.window.len();
        self.window.resize(start + HEADERS_LIMIT, 0);
        let flags = ONE_BUFFER | TINFL_FLAG_HAS_MORE_INPUT;
        let (status, used, written) = decompress(&mut self.inflater, compressed, &mut self.window, start, flags);
        if status != TINFLStatus::NeedsMoreInput || used != compressed.len() {
            return Err(Malformed("headers do not unpack"));
        }
        self.window.truncate(start + written);
        let headers = parse_headers(&self.window[start..]);
        self.window.drain(..self.window.len().saturating_sub(WINDOW));
        headers
    }
}

/// Returns a count, then names and values, all with their lengths in context.
fn parse_headers(mut block: &[u8]) -> Result<Vec<(String, String)>, Malformed> {
    const SHORT: Malformed = Malformed("headers end too early");
    fn number(block: &mut &[u8]) -> Result<usize, Malformed> {
        let value = block.try_get_u32().map_err(|_| SHORT)?;
        usize::try_from(value).map_err(|_| SHORT)
    }
    fn text(block: &mut &[u8]) -> Result<String, Malformed> {
        let length = number(block)?;
        let (text, rest) = block.split_at_checked(length).ok_or(SHORT)?;
        *block = rest;
        Ok(String::from_utf8_lossy(text).into_owned())
    }
    let count = number(&mut block)?;
    let mut headers = Vec::new();
    for _ in 0..count {
        headers.push((text(&mut block)?, text(&mut block)?));
    }
    Ok(headers)
}

fn dictionary() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(WINDOW);
    for name in DICTIONARY_NAMES.split_whitespace() {
        bytes.put_u32(name.len() as u32);
        bytes.extend(name.bytes().map(|byte| if byte == b'_' { b' ' } else { byte }));
    }
    bytes.extend_from_slice(DICTIONARY_VALUES.as_bytes());
    bytes
}

/// The frame encoder.
pub(super) struct Encoder {
    begun: bool,
}

impl Encoder {
    pub(super) fn new() -> Encoder {
        Encoder { begun: false }
    }

    /// Encodes a reply that accepts a stream.
    pub(super) fn reply(&mut self, stream: u32) -> Bytes {
        const NO_HEADERS: [u8; 4] = [0; 4];
        let mut content = BytesMut::new();
        content.put_u32(stream);
        if !std::mem::replace(&mut self.begun, true) {
            content.put_slice(&[0x78, 0x01]);
        }
        store(&mut content, &NO_HEADERS);
        // An empty block makes the reader hand over what it has.
        store(&mut content, &[]);
        control(SYN_REPLY, &content)
    }
}

/// A stored block that is not the last: its length, the length's complement, the bytes.
fn store(target: &mut impl BufMut, bytes: &[u8]) {
    target.put_u8(0);
    target.put_u16_le(bytes.len() as u16);
    target.put_u16_le(!(bytes.len() as u16));
    target.put_slice(bytes);
}

/// Encodes a data frame.
pub(super) fn data(stream: u32, bytes: &[u8], fin: bool) -> Bytes {
    let mut frame = BytesMut::with_capacity(8 + bytes.len());
    frame.put_u32(stream);
    frame.put_u32((bytes.len() as u32) | if fin { u32::from(FIN) << 24 } else { 0 });
    frame.put_slice(bytes);
    frame.freeze()
}

/// Encodes a stream reset.
pub(super) fn refuse(stream: u32) -> Bytes {
    const REFUSED_STREAM: u32 = 3;
    let mut content = BytesMut::new();
    content.put_u32(stream);
    content.put_u32(REFUSED_STREAM);
    control(RST_STREAM, &content)
}

/// Encodes the reply to a ping.
pub(super) fn pong(id: u32) -> Bytes {
    control(PING, &id.to_be_bytes())
}

fn control(kind: u16, content: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(8 + content.len());
    frame.put_u32(CONTROL | u32::from(kind));
    frame.put_u32(content.len() as u32);
    frame.put_slice(content);
    frame.freeze()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a SYN_STREAM as a client without compression would send it.
    fn open(stream: u32, first: bool, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut block = Vec::new();
        block.put_u32(headers.len() as u32);
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            block.put_u32(text.len() as u32);
            block.put_slice(text.as_bytes());
        }
        let mut content = Vec::new();
        content.put_u32(stream);
        content.put_slice(&[0; 6]);
        if first {
            content.put_slice(&[0x78, 0x01]);
        }
        store(&mut content, &block);
        control(SYN_STREAM, &content).to_vec()
    }

    fn all(bytes: &[u8]) -> Result<Vec<Frame>, Malformed> {
        let mut decoder = Decoder::new();
        decoder.feed(bytes);
        let mut frames = Vec::new();
        while let Some(frame) = decoder.next()? {
            frames.push(frame);
        }
        Ok(frames)
    }

    #[test]
    fn the_dictionary_is_that_of_the_protocol() {
        let bytes = dictionary();
        let sum = bytes.iter().fold((1_u32, 0_u32), |(low, high), byte| {
            let low = (low + u32::from(*byte)) % 65521;
            (low, (high + low) % 65521)
        });
        // zlib streams name their dictionary by its Adler-32 checksum.
        assert_eq!((bytes.len(), sum.1 << 16 | sum.0), (1423, 0xe3c6_a7c2));
    }

    #[test]
    fn frames_are_read_however_they_are_cut() {
        let mut bytes = open(1, true, &[("streamtype", "error"), ("port", "80")]);
        bytes.extend(open(3, false, &[("streamtype", "data")]));
        bytes.extend_from_slice(&data(3, b"hello", true));
        bytes.extend_from_slice(&pong(7));
        bytes.extend_from_slice(&refuse(1));
        bytes.extend_from_slice(&control(GOAWAY, &[0; 8]));
        let texts = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        let expect = vec![
            Frame::Open { stream: 1, fin: false, headers: texts(&[("streamtype", "error"), ("port", "80")]) },
            Frame::Open { stream: 3, fin: false, headers: texts(&[("streamtype", "data")]) },
            Frame::Data { stream: 3, fin: true, bytes: Bytes::from_static(b"hello") },
            Frame::Ping(7),
            Frame::Reset { stream: 1 },
            Frame::GoAway,
        ];
        let (mut decoder, mut frames) = (Decoder::new(), Vec::new());
        for byte in &bytes {
            decoder.feed(&[*byte]);
            frames.extend(decoder.next().expect("well formed"));
        }
        assert_eq!(frames, expect);
    }

    /// What zlib makes of the headers of two streams, with the dictionary and a flush after each.
    const COMPRESSED: [&[u8]; 2] = [
        &[
            0x78, 0xf9, 0xe3, 0xc6, 0xa7, 0xc2, 0x02, 0x25, 0x3a, 0x70, 0x3a, 0x2b, 0x29, 0x4a, 0x4d, 0xcc, 0x85, 0x16,
            0x25, 0xac, 0xa9, 0xa0, 0x80, 0x86, 0x14, 0xcb, 0x45, 0xa0, 0x24, 0xcc, 0x64, 0x61, 0x00, 0x24, 0x39, 0x8b,
            0x20, 0x91, 0x98, 0x09, 0x4a, 0xdc, 0x8c, 0x06, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff,
        ],
        &[0xc2, 0xaa, 0x15, 0x54, 0x0a, 0x25, 0x12, 0xd2, 0x09, 0x00, 0x00, 0x00, 0xff, 0xff],
    ];

    #[test]
    fn compressed_headers_refer_to_the_dictionary_and_to_earlier_ones() {
        let mut reader = HeaderReader::new();
        for (compressed, kind) in COMPRESSED.into_iter().zip(["error", "data"]) {
            let expect = [("streamtype", kind), ("port", "80"), ("requestid", "0")];
            let expect = expect.map(|(name, value)| (name.to_owned(), value.to_owned()));
            assert_eq!(reader.read(compressed), Ok(expect.to_vec()));
        }
    }

    #[test]
    fn malformed_frames_are_rejected() {
        for (bytes, expect) in [
            (vec![0x80, 2, 0, 1, 0, 0, 0, 0], "another version"),
            (vec![0, 0, 0, 1, 0, 0xff, 0xff, 0xff], "a frame is too long"),
            (vec![0x80, 3, 0, 1, 0, 0, 0, 2, 0, 0], "a frame is too short"),
            (control(SYN_STREAM, &[0; 10]).to_vec(), "headers without a beginning"),
            (control(HEADERS, &[0, 0, 0, 1, 0x78, 1, 0xff, 0xff]).to_vec(), "headers do not unpack"),
            (control(HEADERS, &[0, 0, 0, 1, 0x78, 1, 0, 1, 0, 0xfe, 0xff, 9]).to_vec(), "headers end too early"),
        ] {
            assert_eq!(all(&bytes), Err(Malformed(expect)), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), begin in 0_usize..3) {
            let beginnings: [&[u8]; 3] =
                [&[0x80, 3, 0, 1, 0, 0, 0, 150], &[0x80, 3, 0, 8, 0, 0, 0, 100, 0, 0, 0, 1, 0x78, 0x01], &[]];
            bytes.splice(..0, beginnings[begin].iter().copied());
            let _ = all(&bytes);
        }
    }
}
