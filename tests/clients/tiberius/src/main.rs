//! The client tiberius: see ../README.md. The driver does not pass on information messages, and ends a batch at its
//! first error.
//!
//! Invariants
//! - Standard output has one JSON object a line, in the forms of ../README.md.
//! - Every batch of standard input ends with `{"ended": true}`, also one that failed.
//!
//! Leaves to others: the statements, which come on standard input, and the judgement of the output, which is the
//! tests'.

use std::env::var;
use std::io::Read;

use futures_util::TryStreamExt;
use serde_json::{Value, json};
use tiberius::{AuthMethod, Client, ColumnData, Config, EncryptionLevel, QueryItem};
use tokio::net::TcpStream;
use tokio_util::compat::{Compat, TokioAsyncWriteCompatExt};

type Connection = Client<Compat<TcpStream>>;

fn shown(cell: &ColumnData<'static>) -> Value {
    fn text(value: &Option<impl ToString>) -> Value {
        value.as_ref().map_or(Value::Null, |v| json!(v.to_string()))
    }
    match cell {
        ColumnData::U8(n) => text(n),
        ColumnData::I16(n) => text(n),
        ColumnData::I32(n) => text(n),
        ColumnData::I64(n) => text(n),
        ColumnData::F32(n) => text(n),
        ColumnData::F64(n) => text(n),
        ColumnData::Bit(b) => text(&b.map(u8::from)),
        ColumnData::String(s) => text(s),
        ColumnData::Guid(id) => text(&id.map(|id| id.to_string().to_uppercase())),
        ColumnData::Binary(bytes) => text(&bytes.as_ref().map(|bytes| {
            let digits: String = bytes.iter().map(|b| format!("{b:02X}")).collect();
            format!("0x{digits}")
        })),
        ColumnData::Numeric(n) => text(n),
        ColumnData::DateTime(Some(at)) => {
            let days = chrono_days(at.days());
            let ms = (u64::from(at.seconds_fragments()) * 10 + 1) / 3;
            let (s, ms) = (ms / 1000, ms % 1000);
            json!(format!(
                "{days} {:02}:{:02}:{:02}.{ms:03}",
                s / 3600,
                s / 60 % 60,
                s % 60
            ))
        }
        other => json!(format!("{other:?}")),
    }
}

/// The date that many days after 1900-01-01, by calendar arithmetic.
fn chrono_days(days: i32) -> String {
    // From 0000-03-01; eras of 400 years.
    let z = i64::from(days) + 693_901;
    let era = z.div_euclid(146_097);
    let day = z.rem_euclid(146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{date:02}")
}

async fn batch(client: &mut Connection, text: &str) -> tiberius::Result<()> {
    let mut stream = client.simple_query(text).await?;
    while let Some(item) = stream.try_next().await? {
        match item {
            QueryItem::Metadata(columns) => {
                let names: Vec<_> = columns.columns().iter().map(|c| c.name()).collect();
                println!("{}", json!({ "columns": names }));
            }
            QueryItem::Row(row) => {
                let cells: Vec<_> = row.cells().map(|(_, cell)| shown(cell)).collect();
                println!("{}", json!({ "row": cells }));
            }
        }
    }
    Ok(())
}

async fn parameters(client: &mut Connection) -> tiberius::Result<()> {
    let rows = client
        .query("SELECT @P1 AS what, @P2 * 2 AS n", &[&"Ωmega", &21i32])
        .await?
        .into_first_result()
        .await?;
    let cells: Vec<_> = rows[0].cells().map(|(_, cell)| shown(cell)).collect();
    println!("{}", json!({ "row": cells }));
    client
        .execute("BACKUP DATABASE shop TO DISK = @P1", &[&"prepared.bak"])
        .await?;
    println!("{}", json!({ "done": null }));
    Ok(())
}

fn failed(error: &tiberius::error::Error) {
    match error {
        tiberius::error::Error::Server(e) => println!(
            "{}",
            json!({ "message": e.message(), "number": e.code(), "class": e.class(), "state": e.state(), "line": e.line() })
        ),
        other => println!("{}", json!({ "lost": other.to_string() })),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut config = Config::new();
    config.host("127.0.0.1");
    config.port(var("TDS_PORT").unwrap().parse().unwrap());
    config.authentication(AuthMethod::sql_server(
        var("TDS_USER").unwrap(),
        var("TDS_PASSWORD").unwrap(),
    ));
    config.encryption(EncryptionLevel::NotSupported);
    let socket = TcpStream::connect(config.get_addr()).await.unwrap();
    socket.set_nodelay(true).unwrap();
    let mut client = match Client::connect(config, socket.compat_write()).await {
        Ok(client) => client,
        Err(error) => {
            println!("{}", json!({ "refused": error.to_string() }));
            std::process::exit(3);
        }
    };
    if var("MODE").as_deref() == Ok("parameters") {
        if let Err(error) = parameters(&mut client).await {
            failed(&error);
        }
        return;
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).unwrap();
    let texts: Vec<String> = serde_json::from_str(&text).unwrap();
    for text in &texts {
        if let Err(error) = batch(&mut client, text).await {
            failed(&error);
        }
        println!("{}", json!({ "ended": true }));
    }
}
