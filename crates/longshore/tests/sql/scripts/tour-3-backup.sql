-- Third part, after another restart: backups in software mode, their history, and the way back.
SELECT accelerator, mode_desc, mode_reason_desc, accelerator_hardware_detected
FROM sys.dm_server_accelerator_status
WHERE accelerator = 'QAT';
GO
BACKUP DATABASE shop
TO DISK = 'tour-1.bak', DISK = 'tour-2.bak'
WITH FORMAT, COMPRESSION (ALGORITHM = MS_XPRESS), NAME = N'xpress', STATS = 50;
GO
BACKUP DATABASE [shop] TO DISK = 'tour-3.bak', DISK = 'tour-4.bak'
WITH INIT, COMPRESSION, MEDIANAME = 'tour', NAME = N'qat', DESCRIPTION = N'the setting''s algorithm';
GO
SELECT bs.database_name, bs.name, bs.type, bs.compression_algorithm, bs.position, ms.media_family_count,
    CASE WHEN bs.compressed_backup_size < bs.backup_size THEN 'smaller' ELSE 'not smaller' END AS size,
    DATEDIFF(hour, bs.backup_start_date, bs.backup_finish_date) AS hours
FROM msdb.dbo.backupset AS bs
JOIN msdb.dbo.backupmediaset AS ms ON ms.media_set_id = bs.media_set_id
WHERE bs.database_name = N'SHOP'
ORDER BY bs.backup_set_id;
GO
RESTORE LABELONLY FROM DISK = 'tour-5.bak';
GO
RESTORE VERIFYONLY FROM DISK = 'tour-3.bak', DISK = 'tour-4.bak' WITH CHECKSUM, MEDIANAME = 'tour';
GO
RESTORE VERIFYONLY FROM DISK = 'tour-3.bak', DISK = 'tour-4.bak' WITH MEDIANAME = 'other';
GO
RESTORE VERIFYONLY FROM DISK = 'tour-3.bak';
GO
RESTORE DATABASE shop FROM DISK = 'tour-4.bak', DISK = 'tour-3.bak' WITH REPLACE, STATS;
GO
RESTORE DATABASE copy FROM DISK = 'tour-3.bak', DISK = 'tour-4.bak' WITH MOVE 'shop.db' TO 'copy.db';
GO
SELECT name, state_desc, recovery_model_desc FROM sys.databases WHERE name IN ('shop', 'copy') ORDER BY name DESC;
GO
BACKUP DATABASE copy TO DISK = 'copy.bak';
GO
RESTORE DATABASE copy FROM DISK = 'tour-1.bak', DISK = 'tour-2.bak';
GO
SELECT COUNT(*) AS restores FROM msdb..restorehistory;
GO
