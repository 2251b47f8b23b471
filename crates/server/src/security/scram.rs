//! SCRAM-SHA-256 (RFC 5802, 7677): the client proves that it knows the password, which never comes here.
//!
//! A [`Verifier`] is stored, in the form of PostgreSQL's `pg_authid`: it checks proofs and cannot make them.
//! For a role that does not exist the exchange goes on with a made-up verifier, so that its answers and its
//! time do not tell. Channel binding is not offered.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac, pbkdf2};
use std::num::NonZeroU32;

/// Rounds of hashing for new passwords; PostgreSQL's default.
pub(crate) const ITERATIONS: u32 = 4096;
/// Maximum number of rounds accepted from a stored verifier.
const ITERATIONS_MAX: u32 = 10_000_000;
const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = digest::SHA256_OUTPUT_LEN;
/// The mechanism's name.
pub(crate) const MECHANISM: &str = "SCRAM-SHA-256";

/// Random bytes; `None` if the system has none, which ends the connection.
pub(crate) fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(bytes)
}

/// Random bytes as a nonce: printable, without a comma.
pub(crate) fn printable(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Stored verifier of a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Verifier {
    iterations: u32,
    salt: Vec<u8>,
    stored_key: [u8; HASH_BYTES],
    server_key: [u8; HASH_BYTES],
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verifier").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

fn hmac_of(key: &[u8], data: &[u8]) -> [u8; HASH_BYTES] {
    let mut out = [0; HASH_BYTES];
    out.copy_from_slice(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), data).as_ref());
    out
}

fn hash(data: &[u8]) -> [u8; HASH_BYTES] {
    let mut out = [0; HASH_BYTES];
    out.copy_from_slice(digest::digest(&digest::SHA256, data).as_ref());
    out
}

/// Tells whether two secrets are the same, in a time that does not tell where they differ.
pub(crate) fn equal(one: &[u8], other: &[u8]) -> bool {
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"comparison");
    hmac::verify(&key, one, hmac::sign(&key, other).as_ref()).is_ok()
}

impl Verifier {
    /// Verifier of a password, with a new salt.
    pub(crate) fn new(password: &str) -> Option<Verifier> {
        Some(Verifier::derive(password, &random::<SALT_BYTES>()?, ITERATIONS))
    }

    fn derive(password: &str, salt: &[u8], iterations: u32) -> Verifier {
        // As clients do it: a password that is no valid text for it is taken as it is.
        let prepared = stringprep::saslprep(password).unwrap_or(password.into());
        let rounds = NonZeroU32::new(iterations).unwrap_or(NonZeroU32::MIN);
        let mut salted = [0; HASH_BYTES];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, salt, prepared.as_bytes(), &mut salted);
        Verifier {
            iterations,
            salt: salt.to_vec(),
            stored_key: hash(&hmac_of(&salted, b"Client Key")),
            server_key: hmac_of(&salted, b"Server Key"),
        }
    }

    /// A verifier that no password fits, always the same for a name while the server runs.
    pub(crate) fn made_up(name: &str, secret: &[u8]) -> Verifier {
        let salt = hmac_of(secret, name.as_bytes())[..SALT_BYTES].to_vec();
        let key = hmac_of(secret, b"no password");
        Verifier { iterations: ITERATIONS, salt, stored_key: key, server_key: key }
    }

    /// `SCRAM-SHA-256$4096:salt$stored:server`.
    pub(crate) fn to_text(&self) -> String {
        let (salt, stored, server) =
            (STANDARD.encode(&self.salt), STANDARD.encode(self.stored_key), STANDARD.encode(self.server_key));
        format!("{MECHANISM}${}:{salt}${stored}:{server}", self.iterations)
    }

    /// Reads [`Verifier::to_text`]; `None` if it is not of that form.
    pub(crate) fn from_text(text: &str) -> Option<Verifier> {
        let rest = text.strip_prefix(MECHANISM)?.strip_prefix('$')?;
        let (cost, keys) = rest.split_once('$')?;
        let (iterations, salt) = cost.split_once(':')?;
        let (stored, server) = keys.split_once(':')?;
        let iterations = iterations.parse().ok().filter(|rounds| (1..=ITERATIONS_MAX).contains(rounds))?;
        let key = |text: &str| STANDARD.decode(text).ok()?.try_into().ok();
        let salt = STANDARD.decode(salt).ok()?;
        Some(Verifier { iterations, salt, stored_key: key(stored)?, server_key: key(server)? })
    }
}

/// A message of the client that is no SCRAM, or asks for something that is not offered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ScramError(pub(crate) &'static str);

/// The server's half of one exchange, after its first answer.
#[derive(Debug)]
pub(crate) struct Exchange {
    verifier: Verifier,
    nonce: String,
    /// Messages that both sides sign, as far as they are known.
    signed: String,
    header: String,
}

impl Exchange {
    /// Reads the client's first message; gives the exchange and the server's first.
    pub(crate) fn begin(
        verifier: Verifier,
        first: &str,
        server_nonce: &str,
    ) -> Result<(Exchange, String), ScramError> {
        let mut parts = first.splitn(3, ',');
        let (binding, authorisation) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let bare = parts.next().ok_or(ScramError("the client's first message ends early"))?;
        match binding {
            "n" | "y" => {}
            _ => return Err(ScramError("channel binding is not offered")),
        }
        if !authorisation.is_empty() {
            return Err(ScramError("authorization identities are not supported"));
        }
        let client_nonce = bare.split(',').find_map(|part| part.strip_prefix("r="));
        let client_nonce =
            client_nonce.filter(|nonce| !nonce.is_empty()).ok_or(ScramError("the nonce is missing"))?;
        let nonce = format!("{client_nonce}{server_nonce}");
        let reply = format!("r={nonce},s={},i={}", STANDARD.encode(&verifier.salt), verifier.iterations);
        let header = STANDARD.encode(format!("{binding},,"));
        Ok((Exchange { verifier, nonce, signed: format!("{bare},{reply}"), header }, reply))
    }

    /// Reads the client's proof: the server's last message if it is right, `None` if it is wrong.
    pub(crate) fn finish(self, last: &str) -> Result<Option<String>, ScramError> {
        let (without_proof, proof) =
            last.rsplit_once(",p=").ok_or(ScramError("the client's last message has no proof"))?;
        let mut parts = without_proof.split(',');
        if parts.next() != Some(&format!("c={}", self.header)) {
            return Err(ScramError("the channel binding differs"));
        }
        if parts.next() != Some(&format!("r={}", self.nonce)) {
            return Err(ScramError("the nonce differs"));
        }
        let proof = STANDARD.decode(proof).map_err(|_| ScramError("the proof is not base64"))?;
        let proof: [u8; HASH_BYTES] =
            proof.try_into().map_err(|_| ScramError("the proof has a wrong length"))?;
        let signed = format!("{},{without_proof}", self.signed);
        let signature = hmac_of(&self.verifier.stored_key, signed.as_bytes());
        let mut client_key = proof;
        client_key.iter_mut().zip(signature).for_each(|(key, mask)| *key ^= mask);
        let right = equal(&hash(&client_key), &self.verifier.stored_key);
        Ok(right
            .then(|| format!("v={}", STANDARD.encode(hmac_of(&self.verifier.server_key, signed.as_bytes())))))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// The example of RFC 7677, section 3.
    #[test]
    fn the_example_of_the_standard_succeeds() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let verifier = Verifier::derive("pencil", &salt, 4096);
        let (exchange, reply) = Exchange::begin(
            verifier.clone(),
            "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
            "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        )
        .unwrap();
        let nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        assert_eq!(reply, format!("r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"));
        let last = format!("c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
        let signature = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
        assert_eq!(exchange.finish(&last), Ok(Some(signature.to_owned())));

        let (exchange, _) =
            Exchange::begin(verifier, "n,,n=user,r=rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
                .unwrap();
        let wrong = format!("c=biws,r={nonce},p={}", STANDARD.encode([7; 32]));
        assert_eq!(exchange.finish(&wrong), Ok(None));
    }

    #[test]
    fn verifiers_are_stored_as_text_without_the_password() {
        let verifier = Verifier::new("secret").unwrap();
        let text = verifier.to_text();
        assert_eq!(Verifier::from_text(&text), Some(verifier));
        assert!(!text.contains("secret"));
        assert_ne!(Verifier::new("secret").unwrap().to_text(), text, "each has a salt of its own");
        assert_eq!(Verifier::from_text("md5abc"), None);
    }

    #[test]
    fn malformed_exchanges_are_refused() {
        let made_up = || Verifier::made_up("nobody", b"secret");
        for first in ["", "n,,", "p=tls-unique,,n=,r=x", "n,a=other,n=,r=x", "n,,n=u"] {
            assert!(Exchange::begin(made_up(), first, "s").is_err(), "{first}");
        }
        for last in ["", "c=biws,r=xs", "c=biws,r=other,p=AA==", "c=AAAA,r=xs,p=AA==", "c=biws,r=xs,p=!"] {
            let (exchange, _) = Exchange::begin(made_up(), "n,,n=u,r=x", "s").unwrap();
            assert!(exchange.finish(last).is_err(), "{last}");
        }
    }
}
