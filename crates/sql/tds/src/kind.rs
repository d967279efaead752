//! The kinds of packets, and their lengths.

/// Bytes of a packet with its header: the bounds of a client's request, and the default.
pub const PACKET_LEN_MIN: usize = 512;
pub const PACKET_LEN_MAX: usize = 32_767;

/// The kinds of packets that a client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum PacketKind {
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

impl PacketKind {
    pub(crate) fn of(byte: u8) -> Option<PacketKind> {
        const ALL: [PacketKind; 9] = [
            PacketKind::SqlBatch,
            PacketKind::Rpc,
            PacketKind::Attention,
            PacketKind::BulkLoad,
            PacketKind::FederatedToken,
            PacketKind::Transaction,
            PacketKind::Login,
            PacketKind::Sspi,
            PacketKind::PreLogin,
        ];
        ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}
