//! What a packet may be, and how long.

/// Bytes of a packet with its header: what a client may ask for, and what it gets unasked.
pub const PACKET_LEN_MIN: usize = 512;
pub const PACKET_LEN_MAX: usize = 32_767;

/// What a client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    SqlBatch = 0x01,
    Rpc = 0x03,
    Attention = 0x06,
    BulkLoad = 0x07,
    FederatedToken = 0x08,
    Transaction = 0x0e,
    Login = 0x10,
    Sspi = 0x11,
    PreLogin = 0x12,
}

impl Kind {
    pub(crate) fn of(byte: u8) -> Option<Kind> {
        const ALL: [Kind; 9] = [
            Kind::SqlBatch,
            Kind::Rpc,
            Kind::Attention,
            Kind::BulkLoad,
            Kind::FederatedToken,
            Kind::Transaction,
            Kind::Login,
            Kind::Sspi,
            Kind::PreLogin,
        ];
        ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}
