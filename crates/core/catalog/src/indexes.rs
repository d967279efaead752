//! Keys that open the indexes of encrypted sets that this machine made, sealed under the service key.
//!
//! A differential backup reads the index of its base. With this, a machine that has recipients and no identity can make one.
//!
//! Sets that can differ from one another are a *chain*: of one database, one source and one place.
//!
//! Invariants
//! - A secret is bound to its set's identifier and root: one that is moved to another row does not open.
//! - It goes with its set's row, and with the second full backup of its chain that is made after it, whatever clocks say:
//!   nothing here builds on older ones, and the keys of what nobody needs are not kept.
//!
//! Leaves to others: which sets are bases (the pipeline), the service key's file (`service_file.rs`), and what the secret
//! opens (`longshore-crypt`).

use longshore_crypt::{IndexSecret, Root};
use longshore_io::{Clock, Storage};
use rusqlite::{OptionalExtension, params};
use uuid::Uuid;

use crate::service_file::ServiceFile;
use crate::{Catalog, Error};

/// A secret of an index is no other secret under the same key.
const KIND: &str = "index";

/// Rows before the last but one full backup of their chain, and those whose set is gone from the history.
const OUTDATED: &str = "DELETE FROM longshore_index WHERE backup_set_uuid NOT IN (SELECT backup_set_uuid FROM backupset)
    OR chain = ?1 AND longshore_index_id < (SELECT longshore_index_id FROM longshore_index WHERE chain = ?1 AND is_full
        ORDER BY longshore_index_id DESC LIMIT 1 OFFSET 1)";

/// A set whose index a later backup of its chain may be compared with.
#[derive(Debug, Clone, Copy)]
pub struct IndexedSet<'a> {
    pub set: Uuid,
    /// The same text for all sets that can differ from one another, and no others.
    pub chain: &'a str,
    pub is_full: bool,
}

fn hex(root: &Root) -> String {
    root.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn root_of(text: &str) -> Option<Root> {
    let mut root = Root::default();
    if text.len() != 2 * root.len() || !text.is_ascii() {
        return None;
    }
    for (at, to) in root.iter_mut().enumerate() {
        *to = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(root)
}

impl Catalog {
    /// Keeps what opens the index of a recorded set; `None`: it has none, and a full one ends its chain all the same.
    ///
    /// Errors: [`Error::ServiceKey`], and those of a change.
    pub fn keep_index(
        &self,
        set: IndexedSet<'_>,
        secret: Option<&IndexSecret>,
        (storage, clock): (&dyn Storage, &dyn Clock),
    ) -> Result<(), Error> {
        let id = set.set.to_string();
        let (root, sealed) = match secret {
            None => (None, None),
            Some(secret) => {
                let file = ServiceFile::of(self.path(), storage)?;
                let key = file.read_or_make(self.needs_no_service_key()?, clock)?;
                let root = hex(&secret.root);
                let sealed = key.seal(&[KIND, &id, &root], secret.text().as_bytes());
                let sealed = sealed.map_err(|e| file.wrong(e.to_string()))?;
                (Some(root), Some(sealed))
            }
        };
        self.write(|tx| {
            // Where nothing is kept of a chain, its other backups leave nothing either.
            tx.execute(
                "INSERT INTO longshore_index (backup_set_uuid, chain, is_full, root, secret)
                 SELECT ?1, ?2, ?3, ?4, ?5
                 WHERE ?5 IS NOT NULL OR EXISTS (SELECT 1 FROM longshore_index WHERE chain = ?2)
                 ON CONFLICT DO NOTHING",
                params![id, set.chain, set.is_full, root, sealed],
            )?;
            tx.execute(OUTDATED, [set.chain])?;
            Ok(())
        })
    }

    /// The key that opens the index of this set; `None` if nothing is kept of it.
    ///
    /// Errors: [`Error::ServiceKey`], and those of reading.
    pub fn index_of(&self, set: Uuid, storage: &dyn Storage) -> Result<Option<IndexSecret>, Error> {
        let set = set.to_string();
        let row: Option<(String, Vec<u8>)> = self.read(|db| {
            db.query_row(
                "SELECT root, secret FROM longshore_index WHERE backup_set_uuid = ?1 AND secret IS NOT NULL",
                [&set],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .optional()
        })?;
        let Some((text, sealed)) = row else {
            return Ok(None);
        };
        let file = ServiceFile::of(self.path(), storage)?;
        let key = file.read()?.ok_or_else(|| file.wrong("it is missing"))?;
        let wrong = || file.wrong("it is not the key that sealed what opens the index of this set");
        let opened = key.open(&[KIND, &set, &text], &sealed);
        let opened = opened.map_err(|_| wrong())?;
        let root = root_of(&text).ok_or_else(wrong)?;
        let secret = str::from_utf8(&opened).ok();
        let secret = secret.and_then(|secret| IndexSecret::of_text(root, secret));
        secret.map(Some).ok_or_else(wrong)
    }
}
