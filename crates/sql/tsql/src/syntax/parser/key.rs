//! Parses statements about the master key and about certificates.
//!
//! Invariants
//! - Names of files, passwords and dates are literals, as in SQL Server: a variable is a syntax error.
//! - A password leaves this file in a type that no text shows.
//! - Forms of SQL Server that are not supported here are refused by name.
//!
//! Leaves to others: hiding passwords in the messages about a batch that has mistakes (`hidden.rs`), and what the statements
//! do (`statement/key.rs`).

use super::Parser;
use crate::message::{Message, NOT_HERE};
use crate::syntax::ast::{
    CertificateOrigin, Hidden, KeyStatement, MasterChange, PrivateKeyFile, Statement,
};

impl Parser<'_> {
    /// Whether the current word begins a statement about the master key or a certificate. OPEN and CLOSE do so only with the
    /// word KEY after it: a cursor may have the name MASTER.
    pub(super) fn is_about_key(&self) -> bool {
        self.next.is_word("MASTER") || self.next.is_word("CERTIFICATE")
    }

    /// The statement from its first word on, which is the current one.
    pub(super) fn key_statement(&mut self) -> Result<Statement, Message> {
        let refused = |what: &str| NOT_HERE.with(&[&what]);
        let alter = self.wrong(refused("ALTER CERTIFICATE"));
        let restore = self.wrong(refused("RESTORE CERTIFICATE"));
        let verb = self.advance()?.raw.to_ascii_uppercase();
        if self.take_word("CERTIFICATE")? {
            return match verb.as_str() {
                "ALTER" => Err(alter),
                "RESTORE" => Err(restore),
                "BACKUP" => self.backup_certificate(),
                "DROP" => {
                    let name = self.identifier()?;
                    Ok(key(KeyStatement::DropCertificate { name }))
                }
                _ => self.create_certificate(),
            };
        }
        self.master_key(&verb)
    }

    /// The statement from the word MASTER on, which is the current one.
    pub(super) fn master_key(&mut self, verb: &str) -> Result<Statement, Message> {
        self.expect_word("MASTER")?;
        self.expect_word("KEY")?;
        Ok(key(match verb {
            "CREATE" => KeyStatement::CreateMaster {
                password: self.password("ENCRYPTION")?,
            },
            "OPEN" => KeyStatement::OpenMaster {
                password: self.password("DECRYPTION")?,
            },
            "CLOSE" => KeyStatement::CloseMaster,
            "DROP" => KeyStatement::DropMaster,
            "ALTER" => KeyStatement::AlterMaster(self.master_change()?),
            "BACKUP" => {
                self.expect_word("TO")?;
                KeyStatement::BackupMaster {
                    file: self.file()?,
                    password: self.password("ENCRYPTION")?,
                }
            }
            _ => {
                self.expect_word("FROM")?;
                KeyStatement::RestoreMaster {
                    file: self.file()?,
                    decryption: self.password("DECRYPTION")?,
                    encryption: self.password("ENCRYPTION")?,
                    force: self.take_word("FORCE")?,
                }
            }
        }))
    }

    fn master_change(&mut self) -> Result<MasterChange, Message> {
        let force = self.take_word("FORCE")?;
        if force || self.is_word("REGENERATE") {
            self.expect_word("REGENERATE")?;
            self.expect_word("WITH")?;
            let password = self.password("ENCRYPTION")?;
            return Ok(MasterChange::Regenerate { force, password });
        }
        let adds = self.take_word("ADD")?;
        if !adds {
            self.expect_word("DROP")?;
        }
        self.expect_word("ENCRYPTION")?;
        self.expect_word("BY")?;
        if self.take_word("SERVICE")? {
            self.expect_word("MASTER")?;
            self.expect_word("KEY")?;
            return Ok(match adds {
                true => MasterChange::AddService,
                false => MasterChange::DropService,
            });
        }
        let password = self.password_itself()?;
        Ok(match adds {
            true => MasterChange::AddPassword(password),
            false => MasterChange::DropPassword(password),
        })
    }

    fn create_certificate(&mut self) -> Result<Statement, Message> {
        let name = self.identifier()?;
        if self.is_word("AUTHORIZATION") {
            return Err(self.not_here("CREATE CERTIFICATE … AUTHORIZATION"));
        }
        let from = match self.take_word("FROM")? {
            true => self.certificate_file()?,
            false => self.new_certificate()?,
        };
        if self.is_word("ACTIVE") {
            return Err(self.not_here("ACTIVE FOR BEGIN_DIALOG"));
        }
        Ok(key(KeyStatement::CreateCertificate { name, from }))
    }

    fn certificate_file(&mut self) -> Result<CertificateOrigin, Message> {
        for other in ["ASSEMBLY", "EXECUTABLE", "BINARY"] {
            if self.is_word(other) {
                return Err(self.not_here(&format!("CREATE CERTIFICATE FROM {other}")));
            }
        }
        Ok(CertificateOrigin::File {
            file: self.file()?,
            private_key: self.private_key_file()?,
        })
    }

    fn new_certificate(&mut self) -> Result<CertificateOrigin, Message> {
        let password = match self.is_word("ENCRYPTION") {
            true => Some(self.password("ENCRYPTION")?),
            false => None,
        };
        self.expect_word("WITH")?;
        self.expect_word("SUBJECT")?;
        self.expect("=")?;
        let subject = self.literal()?;
        let (mut start, mut expiry) = (None, None);
        while self.take(",")? {
            let date = match self.is_word("START_DATE") {
                true => &mut start,
                false => &mut expiry,
            };
            if date.is_some() || !(self.is_word("START_DATE") || self.is_word("EXPIRY_DATE")) {
                return Err(self.syntax());
            }
            self.advance()?;
            self.expect("=")?;
            *date = Some(self.literal()?);
        }
        Ok(CertificateOrigin::New {
            password,
            subject,
            start,
            expiry,
        })
    }

    fn backup_certificate(&mut self) -> Result<Statement, Message> {
        let name = self.identifier()?;
        self.expect_word("TO")?;
        let file = self.file()?;
        Ok(key(KeyStatement::BackupCertificate {
            name,
            file,
            private_key: self.private_key_file()?,
        }))
    }

    /// `[ WITH PRIVATE KEY ( FILE = '…' [, DECRYPTION BY PASSWORD = '…'] [, ENCRYPTION BY PASSWORD = '…'] ) ]`
    fn private_key_file(&mut self) -> Result<Option<PrivateKeyFile>, Message> {
        if !self.take_word("WITH")? {
            return Ok(None);
        }
        if self.is_word("FORMAT") {
            return Err(self.not_here("FORMAT = 'PFX'"));
        }
        self.expect_word("PRIVATE")?;
        self.expect_word("KEY")?;
        self.expect("(")?;
        if self.is_word("BINARY") {
            return Err(self.not_here("PRIVATE KEY (BINARY = …)"));
        }
        let file = self.file()?;
        let (mut decryption, mut encryption) = (None, None);
        while self.take(",")? {
            let (word, password) = match self.is_word("DECRYPTION") {
                true => ("DECRYPTION", &mut decryption),
                false => ("ENCRYPTION", &mut encryption),
            };
            if password.is_some() || !self.is_word(word) {
                return Err(self.syntax());
            }
            *password = Some(self.password(word)?);
        }
        self.expect(")")?;
        Ok(Some(PrivateKeyFile {
            file,
            decryption,
            encryption,
        }))
    }

    fn file(&mut self) -> Result<String, Message> {
        self.expect_word("FILE")?;
        self.expect("=")?;
        self.literal()
    }

    /// `ENCRYPTION BY PASSWORD = '…'`, or with the word DECRYPTION.
    fn password(&mut self, word: &str) -> Result<Hidden, Message> {
        self.expect_word(word)?;
        self.expect_word("BY")?;
        self.password_itself()
    }

    fn password_itself(&mut self) -> Result<Hidden, Message> {
        self.expect_word("PASSWORD")?;
        self.expect("=")?;
        Ok(Hidden::new(self.literal()?))
    }

    pub(super) fn not_here(&self, what: &str) -> Message {
        self.wrong(NOT_HERE.with(&[&what]))
    }
}

fn key(statement: KeyStatement) -> Statement {
    Statement::Key(Box::new(statement))
}
