//! The user in a client certificate: common name and organizations of its subject.
//!
//! The certificate has been verified by the time it gets here; only its subject is read, which takes a
//! few steps through DER.

use super::User;

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];

/// Returns the user of a DER certificate, or `None` if it has no common name.
pub(crate) fn user_of_certificate(der: &[u8]) -> Option<User> {
    let certificate = Der(der).next()?.1;
    let mut fields = Der(Der(certificate).next()?.1);
    let first = fields.next()?;
    // The version is optional; without it the first field is the serial number.
    if first.0 == 0xa0 {
        fields.next()?;
    }
    let subject = fields.nth(3)?.1;
    let mut user = User { groups: Vec::new(), ..User::default() };
    for (_, set) in Der(subject) {
        for (_, pair) in Der(set) {
            let mut pair = Der(pair);
            let (oid, text) = (pair.next()?.1, String::from_utf8_lossy(pair.next()?.1).into_owned());
            if oid == COMMON_NAME {
                user.name = text;
            } else if oid == ORGANIZATION {
                user.groups.push(text);
            }
        }
    }
    user.groups.push("system:authenticated".into());
    (!user.name.is_empty()).then_some(user)
}

/// The values of a DER sequence: tag and content.
struct Der<'a>(&'a [u8]);

impl<'a> Iterator for Der<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (tag, rest) = self.0.split_first()?;
        let (first, mut rest) = rest.split_first()?;
        let mut length = usize::from(*first);
        if length >= 0x80 {
            let count = length & 0x7f;
            if count > 4 {
                return None;
            }
            let (bytes, after) = rest.split_at_checked(count)?;
            length = bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            rest = after;
        }
        let (content, after) = rest.split_at_checked(length)?;
        self.0 = after;
        Some((*tag, content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subject_names_the_user() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:masters");
        params.distinguished_name.push(rcgen::DnType::CommonName, "ann");
        let certificate = params.self_signed(&key).expect("signed");
        let user = user_of_certificate(certificate.der()).expect("a user");
        assert_eq!(user.name, "ann");
        assert_eq!(user.groups, ["system:masters", "system:authenticated"]);
        for end in 0..certificate.der().len() {
            let _ = user_of_certificate(&certificate.der()[..end]);
        }
    }
}
