//! The five kinds of trades.

pub struct TradeType {
    pub id: &'static str,
    pub name: &'static str,
    pub is_sell: bool,
    pub is_market: bool,
    /// Of a hundred trades.
    pub percent: u64,
}

pub static TRADE_TYPES: [TradeType; 5] = [
    TradeType {
        id: "TMB",
        name: "Market-Buy",
        is_sell: false,
        is_market: true,
        percent: 30,
    },
    TradeType {
        id: "TMS",
        name: "Market-Sell",
        is_sell: true,
        is_market: true,
        percent: 30,
    },
    TradeType {
        id: "TLB",
        name: "Limit-Buy",
        is_sell: false,
        is_market: false,
        percent: 20,
    },
    TradeType {
        id: "TLS",
        name: "Limit-Sell",
        is_sell: true,
        is_market: false,
        percent: 10,
    },
    TradeType {
        id: "TSL",
        name: "Stop-Loss",
        is_sell: true,
        is_market: false,
        percent: 10,
    },
];
