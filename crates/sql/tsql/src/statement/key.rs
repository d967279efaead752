//! Statements about the master key and about certificates.
//!
//! Invariants
//! - A change is stored before the statement succeeds, and is refused in a transaction, which could end in ROLLBACK.
//! - Work that takes long (a new key, a password) is done before the catalog is held.
//! - A private key and the master key leave the server only encrypted by a password.
//! - Files are those that statements may name; none is overwritten, and only this user can read a new one.
//! - No message has a password or a key in it, and none tells whether a file exists that the statement may not name.
//!
//! Leaves to others: keeping keys (`server/keys.rs`, `longshore-catalog`), and backups (`encryption.rs`).

use std::path::Path;

use jiff::ToSpan;
use jiff::tz::TimeZone;
use longshore_catalog::{KeptBy, KeptCertificate, MasterKey, ServerKeys};
use longshore_crypt::{
    Certificate, Error as CryptError, KEY_FILE_MAX, KEY_LEN, Passphrase, PrivateKey, SUBJECT_MAX,
    ServiceKey, hexadecimal,
};
use longshore_io::{OpenHow, Via};
use longshore_media::DeviceSpec;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::backup::check_ground;
use super::device::named_path;
use super::ground;
use crate::convert::parse_moment;
use crate::dates::{DateOrder, reordered};
use crate::flow::{Flow, Out};
use crate::message::{self, Message};
use crate::server::{KeyError, OpenMaster, master_context, text_of_date};
use crate::session::Session;
use crate::sink::Command;
use crate::syntax::{CertificateOrigin, Hidden, KeyStatement, MasterChange, PrivateKeyFile};
use crate::value::Type;

/// The fewest and the most characters of a password.
const PASSWORD_MIN: usize = 8;
const PASSWORD_MAX: usize = 128;
/// The most passwords of the master key: opening it tries them all.
const PASSWORDS_MAX: usize = 8;
/// The first word of the master key's file.
const MASTER_WORD: &str = "longshore-master-key-1";
const CERTIFICATE: &str = "certificate";
const MASTER: &str = "master key";

pub(crate) fn key(session: &mut Session, statement: &KeyStatement, out: &mut Out) -> Flow {
    let is_of_session = matches!(
        statement,
        KeyStatement::OpenMaster { .. } | KeyStatement::CloseMaster
    );
    if session.transactions > 0 && !is_of_session {
        let text = "keys and certificates cannot be changed inside a transaction: the change could not be rolled back";
        return Err(message::OWN.with(&[&text]).into());
    }
    match statement {
        KeyStatement::CreateMaster { password } => create_master(session, password)?,
        KeyStatement::OpenMaster { password } => open_master(session, password)?,
        KeyStatement::CloseMaster => {
            let closed = || message::KEY_NOT_OPEN.with(&[&MASTER]);
            session.master_key.take().ok_or_else(closed)?;
        }
        KeyStatement::AlterMaster(change) => alter_master(session, change, out)?,
        KeyStatement::BackupMaster { file, password } => backup_master(session, file, password)?,
        KeyStatement::RestoreMaster {
            file,
            decryption,
            encryption,
            force,
        } => {
            let key = master_in(session, file, decryption)?;
            replace_master(session, key, (encryption, *force, true), out)?;
        }
        KeyStatement::DropMaster => {
            session.server.keys.remove(drop_master)?;
            session.master_key = None;
        }
        KeyStatement::CreateCertificate { name, from } => {
            create_certificate(session, name, from, out)?;
        }
        KeyStatement::BackupCertificate {
            name,
            file,
            private_key,
        } => backup_certificate(session, name, file, private_key.as_ref())?,
        KeyStatement::DropCertificate { name } => session.server.keys.remove(|keys| {
            let before = keys.certificates.len();
            keys.certificates
                .retain(|row| !row.name.eq_ignore_ascii_case(name));
            match keys.certificates.len() < before {
                true => Ok(()),
                false => Err(missing("drop", CERTIFICATE, name).into()),
            }
        })?,
    }
    Ok(out.done(Command::Other, None)?)
}

fn missing(verb: &str, kind: &str, name: &str) -> Message {
    message::OBJECT_MISSING.with(&[&verb, &kind, &name])
}

/// As SQL Server names it in this message.
fn no_master() -> Message {
    missing("find", "symmetric key", MASTER)
}

fn own(text: &str) -> Message {
    message::OWN.with(&[&text])
}

/// A password that something new is encrypted with. Errors: 15116, 15156.
fn new_password(password: &Hidden) -> Result<Passphrase, Message> {
    match password.reveal().chars().count() {
        0..PASSWORD_MIN => Err(message::PASSWORD_SHORT.plain()),
        PASSWORD_MIN..=PASSWORD_MAX => Ok(passphrase(password)),
        _ => Err(message::PASSWORD_LONG.with(&[&PASSWORD_MAX])),
    }
}

fn passphrase(password: &Hidden) -> Passphrase {
    Passphrase::new(Zeroizing::new(password.reveal().as_bytes().to_vec()))
}

fn wrapped(session: &Session, password: &Passphrase, key: &ServiceKey) -> Result<Vec<u8>, Message> {
    let wrapped = session.server.keys.in_turn(|| password.wrap(key.bytes()));
    wrapped.map_err(|e| own(&e.to_string()))
}

/// Errors: 15578, 15116.
fn create_master(session: &Session, password: &Hidden) -> Result<(), Vec<Message>> {
    let keys = &session.server.keys;
    let one = |message: Message| vec![message];
    let password = new_password(password).map_err(one)?;
    if keys.rows().map_err(one)?.master.is_some() {
        return Err(one(message::MASTER_EXISTS.plain()));
    }
    let key = ServiceKey::new().map_err(|e| one(own(&e.to_string())))?;
    let by_password = wrapped(session, &password, &key).map_err(one)?;
    let now = text_of_date(session.server.now());
    keys.change(|keys, service| {
        if keys.master.is_some() {
            return Err(message::MASTER_EXISTS.plain().into());
        }
        let guid = Uuid::new_v4().to_string();
        keys.master = Some(MasterKey {
            by_service: Some(service.seal(&master_context(&guid), &key.bytes()[..])?),
            guid,
            created: now.clone(),
            changed: now,
            by_passwords: vec![by_password],
        });
        Ok(())
    })
}

/// The password of these that opens the master key, and the key.
fn opened_by(
    session: &Session,
    master: &MasterKey,
    password: &Hidden,
) -> Option<(usize, ServiceKey)> {
    let password = passphrase(password);
    let mut all = master.by_passwords.iter().enumerate();
    session.server.keys.in_turn(|| {
        all.find_map(|(at, sealed)| Some((at, ServiceKey::of_bytes(password.open(sealed)?))))
    })
}

/// Errors: 15151, 15313.
fn open_master(session: &mut Session, password: &Hidden) -> Result<(), Message> {
    let (keys, _) = session.server.keys.trusted()?;
    let master = keys.master.ok_or_else(no_master)?;
    let opened = opened_by(session, &master, password);
    let (_, key) = opened.ok_or_else(|| message::WRONG_DECRYPTOR.plain())?;
    session.master_key = Some(OpenMaster::new(master.guid, key));
    Ok(())
}

fn alter_master(session: &mut Session, change: &MasterChange, out: &mut Out) -> Flow {
    if let MasterChange::Regenerate { force, password } = change {
        let key = ServiceKey::new().map_err(|e| own(&e.to_string()))?;
        if session.server.keys.rows()?.master.is_none() {
            return Err(no_master().into());
        }
        return replace_master(session, key, (password, *force, false), out);
    }
    let keys = &session.server.keys;
    if keys.rows()?.master.is_none() {
        return Err(no_master().into());
    }
    let opened = keys.master(session.master_key.as_ref())?;
    let added = match change {
        MasterChange::AddPassword(password) => {
            Some(wrapped(session, &new_password(password)?, opened.key())?)
        }
        _ => None,
    };
    let dropped = match change {
        MasterChange::DropPassword(password) => {
            let (keys, _) = keys.trusted()?;
            let master = keys.master.ok_or_else(no_master)?;
            let found = opened_by(session, &master, password)
                .map(|(at, _)| master.by_passwords[at].clone());
            Some(found.ok_or_else(|| message::WRONG_DECRYPTOR.plain())?)
        }
        _ => None,
    };
    let now = text_of_date(session.server.now());
    keys.change(|keys, service| {
        let master = same_master(keys, &opened)?;
        match (change, added, dropped) {
            (_, Some(sealed), _) if master.by_passwords.len() < PASSWORDS_MAX => {
                master.by_passwords.push(sealed);
            }
            (_, Some(_), _) => {
                let text = format!("the master key has at most {PASSWORDS_MAX} passwords");
                return Err(own(&text).into());
            }
            (_, _, Some(_)) if master.by_passwords.len() < 2 => {
                let text =
                    "the master key keeps one password: add another one before you drop this";
                return Err(own(text).into());
            }
            (_, _, Some(sealed)) => master.by_passwords.retain(|one| *one != sealed),
            (MasterChange::AddService, ..) if master.by_service.is_none() => {
                let context = master_context(&master.guid);
                master.by_service = Some(service.seal(&context, &opened.key().bytes()[..])?);
            }
            (MasterChange::AddService, ..) => {
                let text = "the master key is encrypted by the service master key already";
                return Err(own(text).into());
            }
            _ if master.by_service.is_none() => {
                let text = "the master key is not encrypted by the service master key";
                return Err(own(text).into());
            }
            _ => master.by_service = None,
        }
        master.changed = now;
        Ok(())
    })?;
    Ok(())
}

/// The master key, if it is still the one that was opened. Errors: 15581.
fn same_master<'k>(
    keys: &'k mut ServerKeys,
    opened: &OpenMaster,
) -> Result<&'k mut MasterKey, Message> {
    let same = keys.master.as_mut().filter(|master| opened.is_of(master));
    same.ok_or_else(|| message::NO_MASTER_KEY.plain())
}

/// Makes `key` the master key, and keeps all private keys under it. `how`: its password, FORCE, and whether the service key
/// seals it in any case.
///
/// Errors: 15329, 15320; with FORCE they are said, and what the old key does not open stays as it is.
fn replace_master(
    session: &mut Session,
    key: ServiceKey,
    (password, force, by_service): (&Hidden, bool, bool),
    out: &mut Out,
) -> Flow {
    let keys = &session.server.keys;
    let had_one = keys.rows()?.master.is_some();
    let old = keys.master(session.master_key.as_ref()).ok();
    if had_one && old.is_none() {
        match force {
            true => out.say(message::MASTER_IGNORED.plain())?,
            false => return Err(message::MASTER_CLOSED.plain().into()),
        }
    }
    if old
        .as_ref()
        .is_some_and(|old| old.key().bytes() == key.bytes())
    {
        out.say(message::MASTER_SAME.plain())?;
    }
    let by_password = wrapped(session, &new_password(password)?, &key)?;
    let new = OpenMaster::new(Uuid::new_v4().to_string(), key);
    let now = text_of_date(session.server.now());
    let ignored = keys.change(|keys, service| {
        if had_one && !force {
            let old = old.as_ref().ok_or_else(|| message::MASTER_CLOSED.plain())?;
            same_master(keys, old)?;
        }
        let ignored = reseal(keys, (old.as_ref(), &new, force), service)?;
        let before = keys.master.take();
        let guid = new.guid().to_owned();
        let is_sealed = before.as_ref().is_none_or(|one| one.by_service.is_some());
        let by_service = match is_sealed || by_service {
            true => Some(service.seal(&master_context(&guid), &new.key().bytes()[..])?),
            false => None,
        };
        keys.master = Some(MasterKey {
            guid,
            created: before.map_or_else(|| now.clone(), |one| one.created),
            changed: now,
            by_service,
            by_passwords: vec![by_password],
        });
        Ok(ignored)
    })?;
    for name in ignored {
        out.say(message::OLD_MASTER_IGNORED.with(&[&CERTIFICATE, &name]))?;
    }
    if session.master_key.is_some() {
        session.master_key = Some(new);
    }
    Ok(())
}

/// Puts all private keys of the master key under a new one; returns the names of those that stay as they are.
fn reseal(
    keys: &mut ServerKeys,
    (old, new, force): (Option<&OpenMaster>, &OpenMaster, bool),
    service: &ServiceKey,
) -> Result<Vec<String>, KeyError> {
    let mut ignored = Vec::new();
    let rows = keys.certificates.iter_mut();
    for row in rows.filter(|row| row.kept_by() == KeptBy::MasterKey) {
        let opened = old.and_then(|old| old.open(row)).or_else(|| new.open(row));
        match opened {
            Some(private) => {
                let sealed = new.seal((&row.name, &row.thumbprint()), &private)?;
                row.keep(sealed, service)?;
            }
            None if force => ignored.push(row.name.clone()),
            None => {
                return Err(message::OLD_MASTER_FAILED
                    .with(&[&CERTIFICATE, &row.name])
                    .into());
            }
        }
    }
    Ok(ignored)
}

/// Errors: 15580, 15151.
fn drop_master(keys: &mut ServerKeys) -> Result<(), KeyError> {
    let mut rows = keys.certificates.iter();
    if let Some(row) = rows.find(|row| row.kept_by() == KeptBy::MasterKey) {
        return Err(message::DROP_MASTER_USED
            .with(&[&MASTER, &CERTIFICATE, &row.name])
            .into());
    }
    match keys.master.take() {
        Some(_) => Ok(()),
        None => Err(no_master().into()),
    }
}

fn backup_master(session: &Session, file: &str, password: &Hidden) -> Result<(), Message> {
    let keys = &session.server.keys;
    if keys.rows()?.master.is_none() {
        return Err(no_master());
    }
    let opened = keys.master(session.master_key.as_ref())?;
    let sealed = wrapped(session, &new_password(password)?, opened.key())?;
    let digits = hexadecimal(&sealed);
    let line = format!("{MASTER_WORD} {}\n", digits.trim_start_matches("0x"));
    write_new(session, &[(file, line.as_bytes())])
}

/// The master key in a file of BACKUP MASTER KEY. Errors: 15317, 15466.
fn master_in(session: &Session, file: &str, password: &Hidden) -> Result<ServiceKey, Message> {
    let wrong = || message::MASTER_FILE_WRONG.plain();
    let bytes = read(session, file).map_err(|_| wrong())?;
    let line = std::str::from_utf8(&bytes).map_err(|_| wrong())?.trim_end();
    let digits = line
        .strip_prefix(MASTER_WORD)
        .and_then(|rest| rest.strip_prefix(' '));
    let digits = digits.ok_or_else(wrong)?.as_bytes();
    let half = |digit: &u8| char::from(*digit).to_digit(16);
    let byte = |pair: &[u8; 2]| Some((half(&pair[0])? << 4 | half(&pair[1])?) as u8);
    let (pairs, rest) = digits.as_chunks::<2>();
    let sealed: Option<Vec<u8>> = pairs.iter().map(byte).collect();
    let sealed = sealed.filter(|sealed| rest.is_empty() && sealed.len() == Passphrase::SLOT_LEN);
    let sealed = sealed.ok_or_else(wrong)?;
    let keys = &session.server.keys;
    let key = keys.in_turn(|| passphrase(password).open(&sealed));
    let key: Zeroizing<[u8; KEY_LEN]> = key.ok_or_else(|| message::DECRYPTION_FAILED.plain())?;
    Ok(ServiceKey::of_bytes(key))
}

/// A certificate to be stored, and how its private key will be kept.
struct NewCertificate {
    certificate: Certificate,
    kept_by: KeptBy,
    private_key: Vec<u8>,
    /// The master key that has sealed it.
    master: Option<OpenMaster>,
}

/// Errors: 15232, 15581, and those of a file.
fn create_certificate(
    session: &Session,
    name: &str,
    from: &CertificateOrigin,
    out: &mut Out,
) -> Flow {
    if name.starts_with('#') {
        return Err(own("the name of a certificate does not begin with #").into());
    }
    let exists = || message::CERTIFICATE_EXISTS.with(&[&name]);
    let keys = &session.server.keys;
    if keys.trusted()?.0.certificate(name).is_some() {
        return Err(exists().into());
    }
    let new = match from {
        CertificateOrigin::New {
            password,
            subject,
            start,
            expiry,
        } => generated(session, name, password.as_ref(), (subject, start, expiry))?,
        CertificateOrigin::File { file, private_key } => {
            from_file(session, name, file, private_key.as_ref())?
        }
    };
    let (certificate, thumbprint) = (new.certificate.clone(), new.certificate.thumbprint());
    keys.change(|keys, service| {
        let is_same = |row: &KeptCertificate| row.certificate.thumbprint() == thumbprint;
        if keys.certificate(name).is_some() || keys.certificates.iter().any(is_same) {
            return Err(exists().into());
        }
        if let Some(opened) = &new.master {
            same_master(keys, opened)?;
        }
        let kept = (new.kept_by, new.private_key);
        keys.certificates
            .push(KeptCertificate::new(name, new.certificate, kept, service)?);
        Ok(())
    })?;
    let now_s = session.server.setup.context.clock.wall_ns() / 1_000_000_000;
    if certificate.expiry_s < certificate.start_s {
        out.say(message::VALIDITY_REVERSED.plain())?;
    }
    if certificate.expiry_s < now_s {
        out.say(message::CREATED_EXPIRED.plain())?;
    }
    if certificate.start_s > now_s {
        out.say(message::CREATED_EARLY.plain())?;
    }
    Ok(())
}

/// Errors: 15212, 241, 15581, 15116.
fn generated(
    session: &Session,
    name: &str,
    password: Option<&Hidden>,
    (subject, start, expiry): (&str, &Option<String>, &Option<String>),
) -> Result<NewCertificate, Message> {
    let wrong = || message::SUBJECT_WRONG.with(&[&SUBJECT_MAX]);
    if subject.is_empty() || subject.chars().count() > SUBJECT_MAX {
        return Err(wrong());
    }
    let now_s = session.server.setup.context.clock.wall_ns() / 1_000_000_000;
    let start_s = match start {
        Some(text) => seconds_of(text, session.told.date_order)?,
        None => now_s,
    };
    let expiry_s = match expiry {
        Some(text) => seconds_of(text, session.told.date_order)?,
        None => one_year_after(start_s)?,
    };
    let keeper = Keeper::of(session, password)?;
    let key = PrivateKey::generate().map_err(|e| own(&e.to_string()))?;
    let certificate = Certificate::new(&key, subject, (start_s, expiry_s));
    let certificate = certificate.map_err(|e| own(&e.to_string()))?;
    keeper.keep(name, certificate, &key)
}

/// The future keeper of a private key.
struct Keeper<'a> {
    password: Option<&'a Hidden>,
    master: Option<OpenMaster>,
}

impl<'a> Keeper<'a> {
    /// The password, or else the master key. Errors: 15581, 15116.
    fn of(session: &Session, password: Option<&'a Hidden>) -> Result<Keeper<'a>, Message> {
        let master = match password {
            Some(password) => new_password(password).map(|_| None)?,
            None => Some(session.server.keys.master(session.master_key.as_ref())?),
        };
        Ok(Keeper { password, master })
    }

    fn keep(
        self,
        name: &str,
        certificate: Certificate,
        key: &PrivateKey,
    ) -> Result<NewCertificate, Message> {
        let thumbprint = hexadecimal(&certificate.thumbprint());
        let kept = match (&self.master, self.password) {
            (Some(master), _) => master.seal((name, &thumbprint), key),
            (None, Some(password)) => key.encrypted_file(password.reveal().as_bytes()),
            (None, None) => Ok(Vec::new()),
        };
        Ok(NewCertificate {
            certificate,
            kept_by: match self.master {
                Some(_) => KeptBy::MasterKey,
                None => KeptBy::Password,
            },
            private_key: kept.map_err(|e| own(&e.to_string()))?,
            master: self.master,
        })
    }
}

/// Dates of certificates are in UTC if they name no other zone.
fn seconds_of(text: &str, order: DateOrder) -> Result<i64, Message> {
    let wrong = || own(&format!("'{text}' is no date: write it as '20301231'"));
    let read = reordered(text, Type::DateTime, order);
    let (at, offset_min) = parse_moment(&read).ok_or_else(wrong)?;
    // Days up to the end of 9999 mean never; a timestamp ends before.
    let since = at.duration_since(jiff::civil::DateTime::constant(1970, 1, 1, 0, 0, 0, 0));
    Ok(since.as_secs() - i64::from(offset_min.unwrap_or(0)) * 60)
}

fn one_year_after(start_s: i64) -> Result<i64, Message> {
    let start = jiff::Timestamp::from_second(start_s);
    let start = start.map(|start| start.to_zoned(TimeZone::UTC));
    let after = start.and_then(|start| start.checked_add(1.year()));
    let after = after.map_err(|_| own("a date of the certificate is out of range"))?;
    Ok(after.timestamp().as_second())
}

/// Errors: 15208, 15297, 15464, 15465, 15474, 15581.
fn from_file(
    session: &Session,
    name: &str,
    file: &str,
    private: Option<&PrivateKeyFile>,
) -> Result<NewCertificate, Vec<Message>> {
    let one = |message: Message| vec![message];
    let missing = |_| one(message::KEY_FILE_MISSING.plain());
    let bytes = read(session, file).map_err(missing)?;
    let certificate = Certificate::of_file(&bytes).map_err(|e| refused(&e))?;
    let Some(private) = private else {
        return Ok(NewCertificate {
            certificate,
            kept_by: KeptBy::Nobody,
            private_key: Vec::new(),
            master: None,
        });
    };
    let keeper = Keeper::of(session, private.encryption.as_ref()).map_err(one)?;
    let bytes = read(session, &private.file).map_err(missing)?;
    let password = private.decryption.as_ref();
    let password = password.map(|password| password.reveal().as_bytes());
    let key = PrivateKey::of_file(&bytes, password).map_err(|e| refused(&e))?;
    if key.public() != certificate.public() {
        return Err(one(message::KEY_MISMATCH.with(&[&CERTIFICATE])));
    }
    keeper.keep(name, certificate, &key).map_err(one)
}

/// SQL Server's message for a key or a certificate, then our details.
fn refused(error: &CryptError) -> Vec<Message> {
    let first = match error {
        CryptError::KeyPassword { .. } => message::KEY_PASSWORD.plain(),
        CryptError::PrivateKey { .. } => message::KEY_FORMAT.plain(),
        _ => message::KEY_DATA_WRONG.plain(),
    };
    vec![first, message::DETAIL.with(&[error])]
}

/// Errors: 15151, 15240, 15246, 15146, 15147, 15465, 15466.
fn backup_certificate(
    session: &Session,
    name: &str,
    file: &str,
    private: Option<&PrivateKeyFile>,
) -> Result<(), Vec<Message>> {
    let one = |message: Message| vec![message];
    let keys = &session.server.keys;
    let row = keys.certificate(name).map_err(one)?;
    let Some(private) = private else {
        return write_new(session, &[(file, row.certificate.der())]).map_err(one);
    };
    let Some(password) = &private.encryption else {
        return Err(one(message::PASSWORD_MISSING.with(&[&CERTIFICATE])));
    };
    new_password(password).map_err(one)?;
    let key = private_key_of(session, &row, private.decryption.as_ref())?;
    let sealed = key.encrypted_file(password.reveal().as_bytes());
    let sealed = sealed.map_err(|e| one(own(&e.to_string())))?;
    let files: [(&str, &[u8]); 2] = [(file, row.certificate.der()), (&private.file, &sealed)];
    write_new(session, &files).map_err(one)?;
    let now = text_of_date(session.server.now());
    keys.change(|keys, _| {
        let mut rows = keys.certificates.iter_mut();
        if let Some(found) = rows.find(|found| found.certificate == row.certificate) {
            found.backed_up = Some(now);
        }
        Ok(())
    })
}

fn private_key_of(
    session: &Session,
    row: &KeptCertificate,
    password: Option<&Hidden>,
) -> Result<PrivateKey, Vec<Message>> {
    let one = |message: Message| vec![message];
    match (row.kept_by(), password) {
        (KeptBy::Nobody, _) => Err(one(message::NO_PRIVATE_KEY.with(&[&row.name]))),
        (KeptBy::MasterKey, Some(_)) => {
            Err(one(message::PASSWORD_NOT_NEEDED.with(&[&CERTIFICATE])))
        }
        (KeptBy::MasterKey, None) => {
            let master = session.server.keys.master(session.master_key.as_ref());
            let key = master.map_err(one)?.open(row);
            key.ok_or_else(|| one(message::DECRYPTION_FAILED.plain()))
        }
        (KeptBy::Password, None) => Err(one(message::KEY_PASSWORD.plain())),
        (KeptBy::Password, Some(password)) => {
            let password = Some(password.reveal().as_bytes());
            let key = PrivateKey::of_file(row.private_key(), password).map_err(|e| refused(&e))?;
            match key.public() == row.certificate.public() {
                true => Ok(key),
                false => Err(one(message::KEY_MISMATCH.with(&[&CERTIFICATE]))),
            }
        }
    }
}

/// The content of a file that a statement names. Errors: 3201 and others, which callers replace by one message.
fn read(session: &Session, name: &str) -> Result<Zeroizing<Vec<u8>>, Message> {
    let path = named_path(session, name)?;
    let storage = &*session.server.setup.context.storage;
    let read = || {
        let real = ground::real(storage, &path);
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(std::io::ErrorKind::InvalidFilename.into());
        };
        let file = storage.dir(parent)?.open(Path::new(name), OpenHow::Read)?;
        let mut bytes = Zeroizing::new(vec![0; KEY_FILE_MAX + 1]);
        let len = file.read_full_at(&mut bytes, 0, Via::Cache)?;
        bytes.truncate(len);
        Ok(bytes)
    };
    read().map_err(|_: std::io::Error| message::KEY_FILE_MISSING.plain())
}

/// Writes new files, all of them or none. Errors: 15240.
fn write_new(session: &Session, files: &[(&str, &[u8])]) -> Result<(), Message> {
    let storage = &*session.server.setup.context.storage;
    let mut made = Vec::new();
    for (name, bytes) in files {
        let refused = || message::CANNOT_WRITE.with(&[name]);
        let mut write = || {
            let path = named_path(session, name).map_err(|_| refused())?;
            check_ground(session, &[DeviceSpec::File(path.clone())]).map_err(|_| refused())?;
            let (Some(parent), Some(last)) = (path.parent(), path.file_name()) else {
                return Err(refused());
            };
            let failed = |_: std::io::Error| refused();
            let dir = storage
                .dir(&ground::real(storage, parent))
                .map_err(failed)?;
            let last = Path::new(last).to_path_buf();
            // It has mode 0600, and a name that exists is refused, also that of a link.
            let file = dir.open(&last, OpenHow::CreateNew).map_err(failed)?;
            made.push((dir.clone(), last));
            let written = file
                .write_all_at(bytes, 0, Via::Cache)
                .and_then(|()| file.sync())
                .and_then(|()| dir.sync(Path::new("")));
            written.map_err(failed)
        };
        if let Err(message) = write() {
            for (dir, name) in &made {
                if let Err(error) = dir.remove_file(name) {
                    tracing::warn!(%error, "a file of a key that was not finished is left");
                }
            }
            return Err(message);
        }
    }
    Ok(())
}
