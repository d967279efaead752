//! The fixed records of a stripe: media header, set header, block header, set trailer.
//!
//! Invariants
//! - All integers are little-endian; times are microseconds since the Unix epoch; reserved fields are zero.
//! - The layouts are those of `docs/format.md`.
//!
//! Leaves to others: framing as records (`record.rs`), and their order on a stripe (`member.rs`).

use longshore_codec::{Algorithm, Level};
use longshore_crypt::{FIXED_LEN, Root, SALT_LEN, TAG_LEN};
use longshore_io::SumKey;
use uuid::Uuid;

use crate::record::{Container, Fields, RecordError, put_text};
use crate::tree_root::TreeRoot;

/// The most families (stripes) in one media set, parity families included.
pub const FAMILIES_MAX: u16 = 64;
/// The most parity families in one media set.
pub const PARITY_MAX: u16 = longshore_parity::PARITY_MAX as u16;
/// The most backup sets on one media set. Bounds the cost of listing hostile media.
pub const SETS_MAX: u32 = 1 << 16;
/// The most plain bytes in one block: the limit of every codec, so that no header makes a reader expect more.
pub const PLAIN_MAX: usize = longshore_codec::PLAIN_LEN_MAX;
/// The most manifest bytes of one block.
pub const MANIFEST_MAX: usize = 64 << 10;
/// Bytes of a block header before its part of the manifest.
pub const BLOCK_FIXED_LEN: usize = 72;
/// Bytes of a trailer's body.
pub const TRAILER_LEN: usize = 192;
/// Offset of the proof in a trailer's body.
pub const PROOF_OFFSET: usize = 124;

// The longest texts, in bytes. T-SQL allows 128 characters for names, 255 for descriptions.
const NAME_MAX: usize = 512;
const DESCRIPTION_MAX: usize = 1024;
const SOFTWARE_MAX: usize = 128;
/// Longest machine and user name, in bytes.
pub const PLACE_MAX: usize = 256;
pub const ORIGIN_MAX: usize = 4096;
/// Longest lineage, in bytes.
pub const LINEAGE_MAX: usize = 4096;
/// Longest name in a [`SourceIdentity`], in bytes.
pub const IDENTITY_MAX: usize = 2048;
/// The most births in a [`SourceIdentity`].
pub const BIRTHS_MAX: usize = 64;

/// All sets of the media are encrypted: incompatible bit 0 of the media header.
pub const MEDIA_INCOMPATIBLE_ENCRYPTED: u64 = 1;
/// Parity families follow the data families: incompatible bit 2 of the media header.
pub const MEDIA_INCOMPATIBLE_PARITY: u64 = 1 << 2;
/// Incompatible features of a media set that this version understands.
pub const INCOMPATIBLE_KNOWN: u64 = MEDIA_INCOMPATIBLE_ENCRYPTED | MEDIA_INCOMPATIBLE_PARITY;
/// The set is encrypted: incompatible bit 0 of the set header.
pub const INCOMPATIBLE_ENCRYPTED: u64 = 1;
/// The set holds only what differs from its parent: bit 1 of the set header's incompatible features.
pub const INCOMPATIBLE_DIFFERENTIAL: u64 = 1 << 1;
/// The set holds only WAL: incompatible bit 2 of the set header.
pub const INCOMPATIBLE_LOG: u64 = 1 << 2;
/// Manifests hold page sums, and the set header holds their key: incompatible bit 3 of the set header.
pub const INCOMPATIBLE_SUMS: u64 = 1 << 3;
/// Entries may have extended attributes: incompatible bit 4 of the set header.
pub const INCOMPATIBLE_ATTRIBUTES: u64 = 1 << 4;
/// Payloads are of PAGES: incompatible bit 5 of the set header.
pub const INCOMPATIBLE_PAGES: u64 = 1 << 5;
/// The Keys records of an encrypted set have no slots: incompatible bit 6 of the set header.
pub const INCOMPATIBLE_DETACHED: u64 = 1 << 6;
/// Incompatible features of a set that this version understands.
pub const SET_INCOMPATIBLE_KNOWN: u64 = INCOMPATIBLE_ENCRYPTED
    | INCOMPATIBLE_DIFFERENTIAL
    | INCOMPATIBLE_LOG
    | INCOMPATIBLE_SUMS
    | INCOMPATIBLE_ATTRIBUTES
    | INCOMPATIBLE_PAGES
    | INCOMPATIBLE_DETACHED;
/// Compatible features of a media set that this version writes: none.
pub const COMPATIBLE_WRITTEN: u64 = 0;
/// A lineage follows the set header's last field: compatible bit 0 of the set header.
pub const COMPATIBLE_LINEAGE: u64 = 1;
/// A source identity follows: compatible bit 1 of the set header.
pub const COMPATIBLE_IDENTITY: u64 = 1 << 1;
/// The facts of the tree's own directory follow: compatible bit 2 of the set header.
pub const COMPATIBLE_TREE_ROOT: u64 = 1 << 2;
const SET_COMPATIBLE_KNOWN: u64 = COMPATIBLE_LINEAGE | COMPATIBLE_IDENTITY | COMPATIBLE_TREE_ROOT;

/// Identifies the media set and the family that a stripe belongs to. First record of every stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaHeader {
    pub media_set: Uuid,
    pub family_uuid: Uuid,
    /// 1-based; parity families follow the data families.
    pub family: u16,
    /// Data families, 1 to [`FAMILIES_MAX`].
    pub family_count: u16,
    /// Parity families, 0 to [`PARITY_MAX`].
    pub parity_count: u16,
    pub container: Container,
    /// Whether the sets on this media are compressed; compressed and plain sets do not mix.
    pub compressed: bool,
    /// Whether the sets on this media are encrypted; encrypted and other sets do not mix.
    pub encrypted: bool,
    pub created_us: i64,
    /// How many times the media was initialised (INIT) since it was formatted.
    pub generation: u32,
    /// At most 128 characters of UTF-8 (512 bytes).
    pub name: String,
    pub description: String,
    /// The program and version that formatted the media.
    pub software: String,
}

impl MediaHeader {
    /// What of it every reader knows, as it is on media: all but the bits of compatible features, and their fields.
    pub fn known(&self) -> Vec<u8> {
        let all = self.encode();
        [&all[..48], &all[56..]].concat()
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        out.extend_from_slice(self.media_set.as_bytes());
        out.extend_from_slice(self.family_uuid.as_bytes());
        out.extend_from_slice(&self.family.to_le_bytes());
        out.extend_from_slice(&self.family_count.to_le_bytes());
        out.extend_from_slice(&self.parity_count.to_le_bytes());
        out.push(self.container as u8);
        out.push(self.compressed as u8);
        out.extend_from_slice(&self.created_us.to_le_bytes());
        out.extend_from_slice(&COMPATIBLE_WRITTEN.to_le_bytes());
        let encrypted = match self.encrypted {
            true => MEDIA_INCOMPATIBLE_ENCRYPTED,
            false => 0,
        };
        let parity = match self.parity_count {
            0 => 0,
            _ => MEDIA_INCOMPATIBLE_PARITY,
        };
        out.extend_from_slice(&(encrypted | parity).to_le_bytes());
        out.extend_from_slice(&self.generation.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        put_text(&mut out, &self.name, NAME_MAX);
        put_text(&mut out, &self.description, DESCRIPTION_MAX);
        put_text(&mut out, &self.software, SOFTWARE_MAX);
        out
    }

    pub fn decode(body: &[u8]) -> Result<MediaHeader, RecordError> {
        let mut f = Fields(body);
        let media_set = Uuid::from_bytes(f.array()?);
        let family_uuid = Uuid::from_bytes(f.array()?);
        let family = f.u16()?;
        let family_count = f.u16()?;
        let parity_count = f.u16()?;
        let container = Container::from_number(f.u8()?);
        let compressed = f.u8()?;
        let created_us = f.i64()?;
        let compatible = f.u64()?;
        let incompatible = f.u64()?;
        // Checked before the other fields: a newer version may have changed their meaning.
        if incompatible & !INCOMPATIBLE_KNOWN != 0 {
            return Err(RecordError::Feature(incompatible));
        }
        let generation = f.u32()?;
        f.zeros(4)?;
        let header = MediaHeader {
            media_set,
            family_uuid,
            family,
            family_count,
            parity_count,
            container: container.ok_or(RecordError::Field)?,
            compressed: flag(compressed)?,
            encrypted: incompatible & MEDIA_INCOMPATIBLE_ENCRYPTED != 0,
            created_us,
            generation,
            name: f.text(NAME_MAX)?,
            description: f.text(DESCRIPTION_MAX)?,
            software: f.text(SOFTWARE_MAX)?,
        };
        end(f, compatible)?;
        let has_parity = incompatible & MEDIA_INCOMPATIBLE_PARITY != 0;
        let families = 1..=FAMILIES_MAX - parity_count.min(PARITY_MAX);
        if !families.contains(&family_count)
            || !(1..=family_count + parity_count.min(PARITY_MAX)).contains(&family)
            || parity_count > PARITY_MAX
            || has_parity != (parity_count > 0)
            || (header.is_parity() && header.container != Container::Zstd)
        {
            return Err(RecordError::Field);
        }
        Ok(header)
    }

    /// Whether the stripe holds parity of the others.
    pub fn is_parity(&self) -> bool {
        self.family > self.family_count
    }

    /// Families of both kinds.
    pub fn all_count(&self) -> u16 {
        self.family_count + self.parity_count
    }

    /// The UUID of a parity family, which a lost one gets again.
    pub(crate) fn parity_uuid(media_set: Uuid, generation: u32, family: u16) -> Uuid {
        let mut bytes = media_set.into_bytes();
        let own = family.to_le_bytes().into_iter();
        for (byte, own) in bytes[10..]
            .iter_mut()
            .zip(own.chain(generation.to_le_bytes()))
        {
            *byte ^= own;
        }
        Uuid::from_bytes(bytes)
    }
}

/// A compatible feature of a later version may append fields, so bytes after the known ones are allowed.
fn end(f: Fields, compatible: u64) -> Result<(), RecordError> {
    match compatible {
        0 => f.end(),
        _ => Ok(()),
    }
}

fn flag(n: u8) -> Result<bool, RecordError> {
    match n {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(RecordError::Field),
    }
}

/// The contents of a backup set. The number is on media and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BackupType {
    /// A whole database (T-SQL type `D`).
    Database = 1,
    /// The differences from the parent set (T-SQL type `I`).
    Differential = 2,
    /// WAL between two LSNs, and nothing else (T-SQL type `L`).
    Log = 3,
}

impl BackupType {
    /// The incompatible bit of a set of this type.
    fn feature(self) -> u64 {
        match self {
            BackupType::Database => 0,
            BackupType::Differential => INCOMPATIBLE_DIFFERENTIAL,
            BackupType::Log => INCOMPATIBLE_LOG,
        }
    }
}

/// The incompatible bit of a set whose payloads are of this algorithm.
fn algorithm_feature(algorithm: Algorithm) -> u64 {
    match algorithm {
        Algorithm::Pages => INCOMPATIBLE_PAGES,
        Algorithm::None
        | Algorithm::MsXpress
        | Algorithm::QatDeflate
        | Algorithm::Zstd
        | Algorithm::Lz4 => 0,
    }
}

/// Identifies the PostgreSQL cluster and the start of the set in its WAL. All zero for sources without WAL.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogStart {
    /// PostgreSQL's system identifier.
    pub system: u64,
    pub timeline: u32,
    /// The LSN at which replay begins.
    pub first_lsn: u64,
}

/// The WAL needed to make the set consistent. All zero for sources without WAL.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogEnd {
    pub timeline: u32,
    pub last_lsn: u64,
    /// Whether the set itself holds the WAL from its first to its last LSN.
    pub included: bool,
}

/// Distinguishes a source without WAL from others that are backed up under the same name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceIdentity {
    /// The user's name for the source, instead of machine and origin; at most [`IDENTITY_MAX`] bytes. May be empty.
    pub name: String,
    /// Creation times of the file or of the tree's root, in nanoseconds since the Unix epoch. First those of earlier
    /// sets with the same identity that were at the target, in the order of their last sets; at the end the set's own,
    /// even if it is also among the earlier ones. The last [`BIRTHS_MAX`] are kept. Empty if the set's own is unknown.
    pub births_ns: Vec<i64>,
}

impl SourceIdentity {
    fn is_empty(&self) -> bool {
        self.name.is_empty() && self.births_ns.is_empty()
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_text(&mut out, &self.name, IDENTITY_MAX);
        let births = &self.births_ns[self.births_ns.len().saturating_sub(BIRTHS_MAX)..];
        out.push(births.len() as u8);
        for birth in births {
            out.extend_from_slice(&birth.to_le_bytes());
        }
        out
    }

    fn decode(body: &[u8]) -> Result<SourceIdentity, RecordError> {
        let mut f = Fields(body);
        let name = f.text(IDENTITY_MAX)?;
        let count = usize::from(f.u8()?);
        if count > BIRTHS_MAX {
            return Err(RecordError::Length);
        }
        let births_ns: Result<Vec<i64>, RecordError> = (0..count).map(|_| f.i64()).collect();
        let births_ns = births_ns?;
        f.end()?;
        let identity = SourceIdentity { name, births_ns };
        match identity.is_empty() {
            true => Err(RecordError::Field),
            false => Ok(identity),
        }
    }
}

/// First record of a backup set, the same on every family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetHeader {
    pub set: Uuid,
    /// 1-based number of the set on its media (`FILE = n`).
    pub position: u32,
    pub start_us: i64,
    /// The number of the source's kind (`SourceKind`).
    pub source_kind: u8,
    pub backup_type: BackupType,
    pub algorithm: Algorithm,
    pub level: Level,
    /// The most plain bytes in a block of the set (MAXTRANSFERSIZE).
    pub buffer_bytes: u32,
    /// 0 if the source has no pages.
    pub page_bytes: u32,
    pub copy_only: bool,
    /// Whether the set stores the entries' extended attributes. Sets of older versions never do.
    pub attributes: bool,
    /// Whether names and contents are encrypted. The fields of this header never are.
    pub encrypted: bool,
    /// Whether the slots that open the set are in key objects alone, and not on its media; of encrypted sets alone.
    pub keys_detached: bool,
    /// The set that this one is compared with; present exactly when the type is [`BackupType::Differential`].
    pub parent: Option<Uuid>,
    pub log: LogStart,
    /// The time from which INIT without SKIP may overwrite the set.
    pub expires_us: Option<i64>,
    /// Offset of local time from UTC at the start of the backup, in quarter hours.
    pub time_zone: i16,
    pub database: String,
    pub name: String,
    pub description: String,
    pub machine: String,
    pub user: String,
    /// The source's location, for people; never used as a restore path.
    pub origin: String,
    /// Describes the database server for comparison with others (`longshore_pg::Lineage`); at most [`LINEAGE_MAX`]
    /// bytes. Empty if there is none, and in sets of versions that stored none.
    pub lineage: Vec<u8>,
    /// For sources without WAL; empty if nothing is known.
    pub identity: SourceIdentity,
    /// The directory whose content a set of files is.
    pub tree_root: TreeRoot,
    /// The key of the page sums in the set's manifests; `None` if there are no sums.
    pub sum_key: Option<SumKey>,
    /// Only with a key: the start time of the server that was backed up, in microseconds since the Unix epoch. Two
    /// sets with the same time are from one run of one server.
    pub server_started_us: Option<i64>,
}

const FLAG_COPY_ONLY: u32 = 1;
const LEVEL_LOW: i16 = 0x7f01;
const LEVEL_MEDIUM: i16 = 0x7f02;
const LEVEL_HIGH: i16 = 0x7f03;

impl SetHeader {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        out.extend_from_slice(self.set.as_bytes());
        out.extend_from_slice(&self.position.to_le_bytes());
        out.extend_from_slice(&self.start_us.to_le_bytes());
        out.push(self.source_kind);
        out.push(self.backup_type as u8);
        out.push(self.algorithm as u8);
        out.push(0);
        let level = match self.level {
            Level::Low => LEVEL_LOW,
            Level::Medium => LEVEL_MEDIUM,
            Level::High => LEVEL_HIGH,
            Level::Number(n) => n.clamp(-1000, 1000) as i16,
        };
        out.extend_from_slice(&level.to_le_bytes());
        out.extend_from_slice(&self.time_zone.to_le_bytes());
        out.extend_from_slice(&self.buffer_bytes.to_le_bytes());
        out.extend_from_slice(&self.page_bytes.to_le_bytes());
        let flags = if self.copy_only { FLAG_COPY_ONLY } else { 0 };
        out.extend_from_slice(&flags.to_le_bytes());
        let has_lineage = !self.lineage.is_empty() && self.lineage.len() <= LINEAGE_MAX;
        let lineage = if has_lineage { COMPATIBLE_LINEAGE } else { 0 };
        let has_identity = !self.identity.is_empty();
        let identity = if has_identity { COMPATIBLE_IDENTITY } else { 0 };
        let root = self.tree_root.encode();
        let tree_root = root.as_ref().map_or(0, |_| COMPATIBLE_TREE_ROOT);
        let compatible = lineage | identity | tree_root;
        out.extend_from_slice(&compatible.to_le_bytes());
        let attributes = match self.attributes {
            true => INCOMPATIBLE_ATTRIBUTES,
            false => 0,
        };
        let sums = self.sum_key.map_or(0, |_| INCOMPATIBLE_SUMS);
        let encrypted = match self.encrypted {
            true => INCOMPATIBLE_ENCRYPTED,
            false => 0,
        };
        let detached = match self.keys_detached {
            true => INCOMPATIBLE_DETACHED,
            false => 0,
        };
        let pages = algorithm_feature(self.algorithm);
        let of_keys = encrypted | detached;
        let incompatible = self.backup_type.feature() | attributes | sums | of_keys | pages;
        out.extend_from_slice(&incompatible.to_le_bytes());
        out.extend_from_slice(&self.expires_us.unwrap_or(0).to_le_bytes());
        out.extend_from_slice(self.parent.unwrap_or_default().as_bytes());
        out.extend_from_slice(&self.log.system.to_le_bytes());
        out.extend_from_slice(&self.log.timeline.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.log.first_lsn.to_le_bytes());
        for (text, max) in [
            (&self.database, NAME_MAX),
            (&self.name, NAME_MAX),
            (&self.description, DESCRIPTION_MAX),
            (&self.machine, PLACE_MAX),
            (&self.user, PLACE_MAX),
            (&self.origin, ORIGIN_MAX),
        ] {
            put_text(&mut out, text, max);
        }
        // Fields of incompatible features precede those of compatible ones, which readers may skip.
        if let Some(key) = &self.sum_key {
            out.extend_from_slice(key.as_bytes());
            out.extend_from_slice(&self.server_started_us.unwrap_or(0).to_le_bytes());
        }
        if has_lineage {
            out.extend_from_slice(&(self.lineage.len() as u16).to_le_bytes());
            out.extend_from_slice(&self.lineage);
        }
        if has_identity {
            let identity = self.identity.encode();
            out.extend_from_slice(&(identity.len() as u16).to_le_bytes());
            out.extend_from_slice(&identity);
        }
        if let Some(root) = root {
            out.extend_from_slice(&(root.len() as u16).to_le_bytes());
            out.extend_from_slice(&root);
        }
        out
    }

    pub fn decode(body: &[u8]) -> Result<SetHeader, RecordError> {
        let mut f = Fields(body);
        let fixed = SetFields::decode(&mut f)?;
        let (differential, attributes) = fixed.check()?;
        let mut header = SetHeader {
            set: fixed.set,
            position: fixed.position,
            start_us: fixed.start_us,
            source_kind: fixed.source_kind,
            backup_type: fixed.backup_type,
            algorithm: fixed.algorithm,
            level: fixed.level,
            buffer_bytes: fixed.buffer_bytes,
            page_bytes: fixed.page_bytes,
            copy_only: fixed.flags & FLAG_COPY_ONLY != 0,
            attributes,
            encrypted: fixed.incompatible & INCOMPATIBLE_ENCRYPTED != 0,
            keys_detached: fixed.incompatible & INCOMPATIBLE_DETACHED != 0,
            parent: differential.then_some(fixed.parent),
            log: fixed.log,
            expires_us: (fixed.expires_us != 0).then_some(fixed.expires_us),
            time_zone: fixed.time_zone,
            database: f.text(NAME_MAX)?,
            name: f.text(NAME_MAX)?,
            description: f.text(DESCRIPTION_MAX)?,
            machine: f.text(PLACE_MAX)?,
            user: f.text(PLACE_MAX)?,
            origin: f.text(ORIGIN_MAX)?,
            lineage: Vec::new(),
            identity: SourceIdentity::default(),
            tree_root: TreeRoot::Unknown,
            sum_key: None,
            server_started_us: None,
        };
        if fixed.incompatible & INCOMPATIBLE_SUMS != 0 {
            header.sum_key = Some(SumKey::from_bytes(f.array()?));
            header.server_started_us = Some(f.i64()?).filter(|us| *us != 0);
        }
        if fixed.compatible & COMPATIBLE_LINEAGE != 0 {
            header.lineage = f.run()?.to_vec();
            if !(1..=LINEAGE_MAX).contains(&header.lineage.len()) {
                return Err(RecordError::Length);
            }
        }
        if fixed.compatible & COMPATIBLE_IDENTITY != 0 {
            header.identity = SourceIdentity::decode(f.run()?)?;
        }
        if fixed.compatible & COMPATIBLE_TREE_ROOT != 0 {
            header.tree_root = TreeRoot::decode(f.run()?)?;
        }
        end(f, fixed.compatible & !SET_COMPATIBLE_KNOWN)?;
        Ok(header)
    }
}

/// The fields of a set header that every set has and that have a fixed length, in the order of the record.
struct SetFields {
    set: Uuid,
    position: u32,
    start_us: i64,
    source_kind: u8,
    backup_type: BackupType,
    algorithm: Algorithm,
    reserved: u8,
    level: Level,
    time_zone: i16,
    buffer_bytes: u32,
    page_bytes: u32,
    flags: u32,
    compatible: u64,
    incompatible: u64,
    expires_us: i64,
    parent: Uuid,
    log: LogStart,
}

impl SetFields {
    fn decode(f: &mut Fields) -> Result<SetFields, RecordError> {
        let set = Uuid::from_bytes(f.array()?);
        let position = f.u32()?;
        let start_us = f.i64()?;
        let source_kind = f.u8()?;
        let (backup_type, algorithm, reserved) = (f.u8()?, f.u8()?, f.u8()?);
        let level = f.u16()? as i16;
        let time_zone = f.u16()? as i16;
        let (buffer_bytes, page_bytes, flags) = (f.u32()?, f.u32()?, f.u32()?);
        let (compatible, incompatible) = (f.u64()?, f.u64()?);
        // A newer version may have given the other fields another meaning.
        if incompatible & !SET_INCOMPATIBLE_KNOWN != 0 {
            return Err(RecordError::Feature(incompatible));
        }
        let expires_us = f.i64()?;
        let parent = Uuid::from_bytes(f.array()?);
        let (system, timeline) = (f.u64()?, f.u32()?);
        f.zeros(4)?;
        let first_lsn = f.u64()?;
        Ok(SetFields {
            set,
            position,
            start_us,
            source_kind,
            backup_type: match backup_type {
                1 => BackupType::Database,
                2 => BackupType::Differential,
                3 => BackupType::Log,
                _ => return Err(RecordError::Field),
            },
            algorithm: Algorithm::from_number(algorithm).ok_or(RecordError::Field)?,
            reserved,
            level: match level {
                LEVEL_LOW => Level::Low,
                LEVEL_MEDIUM => Level::Medium,
                LEVEL_HIGH => Level::High,
                n => Level::Number(i32::from(n)),
            },
            time_zone,
            buffer_bytes,
            page_bytes,
            flags,
            compatible,
            incompatible,
            expires_us,
            parent,
            log: LogStart {
                system,
                timeline,
                first_lsn,
            },
        })
    }

    /// Whether the set is a differential, and whether its manifests have attributes.
    ///
    /// Errors: fields that are out of range or contradict each other.
    fn check(&self) -> Result<(bool, bool), RecordError> {
        let differential = self.backup_type == BackupType::Differential;
        let of_keys = INCOMPATIBLE_ENCRYPTED | INCOMPATIBLE_DETACHED;
        let of_any = INCOMPATIBLE_ATTRIBUTES | INCOMPATIBLE_SUMS | of_keys;
        let of_algorithm = self.incompatible & INCOMPATIBLE_PAGES;
        let of_type = self.incompatible & !(of_any | INCOMPATIBLE_PAGES);
        let fits_type =
            differential != self.parent.is_nil() && of_type == self.backup_type.feature();
        let fits_algorithm = of_algorithm == algorithm_feature(self.algorithm);
        let fits_keys = self.incompatible & of_keys != INCOMPATIBLE_DETACHED;
        let in_range = (1..=SETS_MAX).contains(&self.position)
            && (1..=PLAIN_MAX as u32).contains(&self.buffer_bytes);
        let nothing_unknown = self.reserved == 0 && self.flags & !FLAG_COPY_ONLY == 0;
        match fits_type && fits_algorithm && fits_keys && in_range && nothing_unknown {
            true => Ok((
                differential,
                self.incompatible & INCOMPATIBLE_ATTRIBUTES != 0,
            )),
            false => Err(RecordError::Field),
        }
    }
}

/// The header of one block. The payload follows this record; earlier parts of a long manifest precede it as `Manifest`
/// records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockHeader {
    pub set: Uuid,
    /// 0-based, counted over all families of the set.
    pub sequence: u64,
    /// Plain bytes: 0 (names only) to the set's `buffer_bytes`.
    pub plain_len: u32,
    /// Payload bytes after this record.
    pub stored_len: u32,
    /// CRC-32C of the plain bytes.
    pub plain_crc: u32,
    /// CRC-32C of the payload.
    pub stored_crc: u32,
    /// CRC-32C of the whole manifest.
    pub manifest_crc: u32,
    /// Bytes of the whole manifest, at most [`MANIFEST_MAX`].
    pub manifest_len: u32,
    /// `Manifest` records before this record.
    pub manifest_parts: u16,
    pub algorithm: Algorithm,
    /// In an encrypted set, what the block's keys are derived with; zeros in others.
    pub salt: [u8; SALT_LEN],
}

impl BlockHeader {
    /// The fields that are known before a block is encrypted, and bound to it.
    pub fn fixed(&self) -> [u8; FIXED_LEN] {
        let all = self.encode();
        let mut out = [0; FIXED_LEN];
        out[..32].copy_from_slice(&all[..32]);
        out[32..].copy_from_slice(&all[44..51]);
        out
    }

    /// Whether the block is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.salt != [0; SALT_LEN]
    }

    pub fn encode(&self) -> [u8; BLOCK_FIXED_LEN] {
        let mut out = [0; BLOCK_FIXED_LEN];
        out[..16].copy_from_slice(self.set.as_bytes());
        out[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        out[24..28].copy_from_slice(&self.plain_len.to_le_bytes());
        out[28..32].copy_from_slice(&self.stored_len.to_le_bytes());
        out[32..36].copy_from_slice(&self.plain_crc.to_le_bytes());
        out[36..40].copy_from_slice(&self.stored_crc.to_le_bytes());
        out[40..44].copy_from_slice(&self.manifest_crc.to_le_bytes());
        out[44..48].copy_from_slice(&self.manifest_len.to_le_bytes());
        out[48..50].copy_from_slice(&self.manifest_parts.to_le_bytes());
        out[50] = self.algorithm as u8;
        out[51..51 + SALT_LEN].copy_from_slice(&self.salt);
        out
    }

    /// Returns the header and this record's part of the manifest.
    pub fn decode(body: &[u8]) -> Result<(BlockHeader, &[u8]), RecordError> {
        let mut f = Fields(body);
        let header = BlockHeader {
            set: Uuid::from_bytes(f.array()?),
            sequence: f.u64()?,
            plain_len: f.u32()?,
            stored_len: f.u32()?,
            plain_crc: f.u32()?,
            stored_crc: f.u32()?,
            manifest_crc: f.u32()?,
            manifest_len: f.u32()?,
            manifest_parts: f.u16()?,
            algorithm: Algorithm::from_number(f.u8()?).ok_or(RecordError::Field)?,
            salt: f.array()?,
        };
        f.zeros(5)?;
        let more = match header.is_encrypted() {
            true => ENCRYPTED_EXTRA,
            false => 0,
        };
        if header.plain_len as usize > PLAIN_MAX
            || header.manifest_len as usize > MANIFEST_MAX
            || (header.plain_len == 0) != (header.stored_len == 0)
            || header.stored_len as usize > stored_max(header.plain_len as usize) + more
        {
            return Err(RecordError::Length);
        }
        if header.plain_len == 0 && (header.plain_crc, header.stored_crc) != (0, 0) {
            return Err(RecordError::Field);
        }
        Ok((header, f.0))
    }
}

/// Bytes that encryption adds to a payload: the head of its frame, and its tag.
pub const ENCRYPTED_EXTRA: usize = ENCRYPTED_HEAD + TAG_LEN;
/// Bytes of an encrypted payload's frame before what was encrypted.
pub const ENCRYPTED_HEAD: usize = 8;

/// The longest payload of a block, encrypted or not.
pub fn payload_max(plain_len: usize) -> usize {
    stored_max(plain_len) + ENCRYPTED_EXTRA
}

/// The longest payload of a block that is not encrypted: incompressible input is stored with a small overhead.
pub fn stored_max(plain_len: usize) -> usize {
    plain_len + plain_len / 256 + 1024
}

/// Last record of a backup set on each family. A set without it, on any family, is incomplete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetTrailer {
    pub set: Uuid,
    pub position: u32,
    /// Whether something in the set differs from the source (a file changed, a page was bad).
    pub damaged: bool,
    pub log: LogEnd,
    pub finish_us: i64,
    /// Offset of the set header's framing in this stripe.
    pub set_offset: u64,
    /// Offset of the previous set's trailer framing in this stripe; 0: this is the first set.
    pub previous_trailer: u64,
    pub blocks_here: u64,
    pub blocks_total: u64,
    pub plain_bytes_total: u64,
    /// Bytes of all families from the set header up to the trailer.
    pub stored_bytes_total: u64,
    pub entries_total: u64,
    pub files_total: u64,
    /// Offset of the last index chunk's first record in this stripe; 0: none.
    pub index_offset: u64,
    /// Bytes of that chunk, framing included.
    pub index_len: u32,
    /// CRC-32C over (sequence as u64, stored_crc as u32) of this family's blocks in stripe order; of a parity family,
    /// over (row as u64, CRC of its chunk as u32).
    pub chain_crc: u32,
    /// Present in encrypted sets alone.
    pub proof: Option<RootProof>,
}

/// The proof that all of an encrypted set is its writer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootProof {
    /// HMAC, under the set's key, of the trailer's bytes before it and of the root.
    pub mac: Root,
    /// The root of the set, the same on all families.
    pub root: Root,
}

const FLAG_DAMAGED: u32 = 1;
const FLAG_LOG_INCLUDED: u32 = 2;

impl SetTrailer {
    /// The set's root as people compare it, in 64 hexadecimal digits; `None` if the set is not encrypted.
    pub fn root_text(&self) -> Option<String> {
        let digits = self.proof?.root.map(|byte| format!("{byte:02x}"));
        Some(digits.concat())
    }

    /// Whether two families' trailers belong to one set and agree on its totals.
    pub fn agrees_with(&self, other: &SetTrailer) -> bool {
        self.set == other.set
            && self.damaged == other.damaged
            && self.log == other.log
            && self.finish_us == other.finish_us
            && self.blocks_total == other.blocks_total
            && self.plain_bytes_total == other.plain_bytes_total
            && self.stored_bytes_total == other.stored_bytes_total
            && self.entries_total == other.entries_total
            && self.files_total == other.files_total
            && self.proof.map(|p| p.root) == other.proof.map(|p| p.root)
    }

    /// The bytes before the proof, which its MAC covers.
    pub fn start(&self) -> [u8; PROOF_OFFSET] {
        let mut out = [0; PROOF_OFFSET];
        out.copy_from_slice(&self.encode()[..PROOF_OFFSET]);
        out
    }

    /// The bytes that are equal on all families, which the root covers.
    pub fn whole(&self) -> Vec<u8> {
        let all = self.encode();
        [&all[..32], &all[56..96], &all[112..PROOF_OFFSET]].concat()
    }

    pub fn encode(&self) -> [u8; TRAILER_LEN] {
        let mut out = Vec::with_capacity(TRAILER_LEN);
        out.extend_from_slice(self.set.as_bytes());
        out.extend_from_slice(&self.position.to_le_bytes());
        let damaged = if self.damaged { FLAG_DAMAGED } else { 0 };
        let included = if self.log.included {
            FLAG_LOG_INCLUDED
        } else {
            0
        };
        out.extend_from_slice(&(damaged | included).to_le_bytes());
        out.extend_from_slice(&self.finish_us.to_le_bytes());
        for n in [
            self.set_offset,
            self.previous_trailer,
            self.blocks_here,
            self.blocks_total,
            self.plain_bytes_total,
            self.stored_bytes_total,
            self.entries_total,
            self.files_total,
            self.index_offset,
        ] {
            out.extend_from_slice(&n.to_le_bytes());
        }
        out.extend_from_slice(&self.index_len.to_le_bytes());
        out.extend_from_slice(&self.chain_crc.to_le_bytes());
        out.extend_from_slice(&self.log.last_lsn.to_le_bytes());
        out.extend_from_slice(&self.log.timeline.to_le_bytes());
        let mut fixed = [0; TRAILER_LEN];
        fixed[..out.len()].copy_from_slice(&out);
        if let Some(proof) = &self.proof {
            fixed[PROOF_OFFSET..][..32].copy_from_slice(&proof.mac);
            fixed[PROOF_OFFSET + 32..][..32].copy_from_slice(&proof.root);
        }
        fixed
    }

    pub fn decode(body: &[u8]) -> Result<SetTrailer, RecordError> {
        let mut f = Fields(body);
        let set = Uuid::from_bytes(f.array()?);
        let position = f.u32()?;
        let flags = f.u32()?;
        let mut trailer = SetTrailer {
            set,
            position,
            damaged: flags & FLAG_DAMAGED != 0,
            log: LogEnd::default(),
            finish_us: f.i64()?,
            set_offset: f.u64()?,
            previous_trailer: f.u64()?,
            blocks_here: f.u64()?,
            blocks_total: f.u64()?,
            plain_bytes_total: f.u64()?,
            stored_bytes_total: f.u64()?,
            entries_total: f.u64()?,
            files_total: f.u64()?,
            index_offset: f.u64()?,
            index_len: f.u32()?,
            chain_crc: f.u32()?,
            proof: None,
        };
        trailer.log = LogEnd {
            last_lsn: f.u64()?,
            timeline: f.u32()?,
            included: flags & FLAG_LOG_INCLUDED != 0,
        };
        let proof = RootProof {
            mac: f.array()?,
            root: f.array()?,
        };
        trailer.proof = (proof.root != [0; 32]).then_some(proof);
        f.zeros(TRAILER_LEN - PROOF_OFFSET - 64)?;
        f.end()?;
        if trailer.proof.is_none() && proof.mac != [0; 32] {
            return Err(RecordError::Field);
        }
        if !(1..=SETS_MAX).contains(&position)
            || flags & !(FLAG_DAMAGED | FLAG_LOG_INCLUDED) != 0
            || trailer.blocks_here > trailer.blocks_total
        {
            return Err(RecordError::Field);
        }
        Ok(trailer)
    }
}
