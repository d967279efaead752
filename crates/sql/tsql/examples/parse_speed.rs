//! The speed of parsing: `cargo run --release -p longshore-tsql --example parse_speed [FILE]`.
//!
//! Without a file, statements as scripts about backups contain them. One thread, the best of several rounds: once all
//! in one batch, once a batch at a time.

use std::time::Instant;

use longshore_tsql::syntax::parse;

const STATEMENTS: &str = "\
BACKUP DATABASE [shop] TO DISK = N'/mnt/backup/shop/full_20270131.bak', DISK = N'/mnt/backup2/shop/full_20270131.bak'
  WITH INIT, FORMAT, COMPRESSION (ALGORITHM = QAT_DEFLATE), CHECKSUM, STATS = 10, NAME = N'shop full', BUFFERCOUNT = 50;
BACKUP LOG [shop] TO DISK = @device WITH NOINIT, CHECKSUM, COMPRESSION, RETAINDAYS = 14, STATS = 5;
DECLARE @device nvarchar(260) = N'/mnt/backup/shop/log_' + CONVERT(nvarchar(8), GETDATE(), 112) + N'.trn';
RESTORE DATABASE [shop_copy] FROM DISK = N'/mnt/backup/shop/full_20270131.bak' WITH FILE = 1,
  MOVE N'shop' TO N'/srv/data/shop_copy.mdf', MOVE N'shop_log' TO N'/srv/log/shop_copy.ldf', NORECOVERY, REPLACE;
RESTORE LOG [shop_copy] FROM DISK = N'/mnt/backup/shop/log_20270131.trn' WITH STOPAT = '2027-01-31T06:00:00', RECOVERY;
EXEC sp_configure 'backup compression default', 1; RECONFIGURE WITH OVERRIDE;
IF @@ERROR <> 0 BEGIN PRINT 'the backup has failed'; SET @failed += 1 END
SELECT TOP 10 s.database_name, s.backup_size / s.compressed_backup_size AS ratio, f.physical_device_name
  FROM msdb.dbo.backupset AS s JOIN msdb.dbo.backupmediafamily AS f ON f.media_set_id = s.media_set_id
  WHERE s.type = 'D' AND s.backup_finish_date > DATEADD(day, -7, GETDATE()) ORDER BY s.backup_finish_date DESC;
";
const ROUNDS: usize = 15;
const BYTES: usize = 8 << 20;

fn main() -> std::io::Result<()> {
    let text = match std::env::args_os().nth(1) {
        Some(path) => std::fs::read_to_string(path)?,
        None => STATEMENTS.to_owned(),
    };
    let copies = (BYTES / text.len().max(1)).max(1);
    measure("one batch", 1, &text.repeat(copies))?;
    measure("batches", copies, &text)
}

/// Dropping the batches is part of the time.
fn measure(name: &str, times: usize, text: &str) -> std::io::Result<()> {
    let mut least = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..times {
            parse(text).map_err(|e| std::io::Error::other(e.to_string()))?;
        }
        least = least.min(start.elapsed().as_secs_f64());
    }
    let (mb, bytes) = ((text.len() * times) as f64 / 1e6, text.len());
    println!("{name} of {bytes} bytes: {:.0} MB/s", mb / least);
    Ok(())
}
