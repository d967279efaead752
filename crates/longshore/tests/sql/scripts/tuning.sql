-- How fast can it be read, and with which buffers? NUL keeps nothing; trace flag 3213 shows what was chosen.
DBCC TRACEON (3604, 3213);
GO
BACKUP DATABASE shop TO DISK = 'NUL' WITH COPY_ONLY, BUFFERCOUNT = 24, MAXTRANSFERSIZE = 2097152;
GO
DBCC TRACEOFF (3213) WITH NO_INFOMSGS;
GO
BACKUP DATABASE shop TO DISK = 'nul', DISK = 'Nul' WITH COPY_ONLY, COMPRESSION (ALGORITHM = ZSTD, LEVEL = HIGH);
GO
DECLARE @size int = 65536, @count int = 10;
BACKUP DATABASE shop TO DISK = 'NUL' WITH COPY_ONLY, MAXTRANSFERSIZE = @size, BUFFERCOUNT = @count;
GO
SELECT TOP (2) compression_algorithm, is_copy_only, flags & 1024 AS copy_only_flag
FROM msdb.dbo.backupset ORDER BY backup_set_id DESC;
GO
DBCC TRACESTATUS (-1);
GO
