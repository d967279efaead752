-- The statements that maintenance procedures build.
SET NOCOUNT ON
:setvar Database shop
:setvar Folder "full"
DECLARE @Database sysname = N'$(Database)', @Directory nvarchar(max), @File nvarchar(max), @Command nvarchar(max);
DECLARE @Error int, @Version numeric(18, 10);
SET @Directory = N'$(Folder)';
SET @Version = CAST(LEFT(CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(max)),
    CHARINDEX('.', CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(max))) - 1) AS int);
IF @Version >= 16 PRINT 'backup compression algorithms are there' ELSE PRINT 'too old';
IF DB_ID(@Database) IS NULL
BEGIN
    PRINT 'The database ' + QUOTENAME(@Database) + ' does not exist.'
    RETURN
END
EXECUTE [master].dbo.xp_create_subdir @Directory
SET @File = @Directory + N'/' + @Database + N'_FULL.bak';
SET @Command = N'BACKUP DATABASE ' + QUOTENAME(@Database) + N' TO DISK = N''' + REPLACE(@File, '''', '''''') +
    N''' WITH CHECKSUM, COMPRESSION, NAME = N''nightly'', RETAINDAYS = 2, BLOCKSIZE = 4096, INIT';
EXECUTE @Error = sp_executesql @stmt = @Command
SET @Error = @@ERROR
IF @Error <> 0 PRINT 'the backup failed'
SET @Command = N'RESTORE VERIFYONLY FROM DISK = @File WITH CHECKSUM, LOADHISTORY'
EXECUTE sp_executesql @stmt = @Command, @params = N'@File nvarchar(max)', @File = @File
BEGIN TRY
    EXECUTE sp_executesql N'BACKUP DATABASE nowhere TO DISK = ''NUL'''
    PRINT 'never said'
END TRY
BEGIN CATCH
    PRINT 'caught ' + CAST(ERROR_NUMBER() AS varchar(10)) + ': ' + ERROR_MESSAGE()
END CATCH
DECLARE @Count int, @Newest datetime;
EXEC sp_executesql N'SELECT @n = COUNT(*), @d = MAX(backup_finish_date) FROM msdb.dbo.backupset WHERE name = @name',
    N'@n int OUTPUT, @d datetime OUT, @name nvarchar(128)', @Count OUTPUT, @Newest OUTPUT, N'nightly';
PRINT CONCAT('backups: ', @Count);
IF @Newest > DATEADD(minute, -30, GETDATE()) PRINT 'the newest is new';
GO
-- INIT while the set is kept.
BACKUP DATABASE shop TO DISK = N'full/shop_FULL.bak' WITH INIT
GO
BACKUP DATABASE shop TO DISK = N'full/shop_FULL.bak' WITH INIT, SKIP
GO
USE msdb
GO
;WITH newest AS (
    SELECT database_name, type, backup_finish_date, is_copy_only,
        ROW_NUMBER() OVER (PARTITION BY database_name, type ORDER BY backup_finish_date DESC) AS place
    FROM backupset
    WHERE is_copy_only = 0 AND type IN ('D', 'I', 'L')
)
SELECT d.name, d.recovery_model_desc, ISNULL(n.type, '-') AS type,
    CASE WHEN n.backup_finish_date IS NULL THEN 'never' ELSE 'backed up' END AS state
FROM sys.databases AS d
LEFT JOIN newest AS n ON n.database_name = d.name AND n.place = 1
ORDER BY d.name
GO
SELECT database_name, AVG(CONVERT(NUMERIC(20, 2), backup_size / 1048576)) AS mb,
    COUNT(*) AS backups, CONVERT(varchar(10), MIN(position)) AS first_position
FROM msdb.dbo.backupset
WHERE backup_start_date >= '2020-01-01' AND is_snapshot = 0
GROUP BY database_name
GO
SELECT s.database_name, f.physical_device_name
FROM backupset s INNER JOIN backupmediafamily f ON s.media_set_id = f.media_set_id
WHERE f.physical_device_name LIKE '%[_]full.bak' AND f.device_type IN (2, 102)
GROUP BY s.database_name, f.physical_device_name
GO
EXEC sp_addumpdevice 'disk', 'Weekly', 'weekly.bak'
BACKUP DATABASE shop TO Weekly
BACKUP DATABASE shop TO [weekly] WITH NOINIT
SELECT name, type_desc FROM sys.backup_devices
EXEC sp_dropdevice 'Weekly'
BACKUP DATABASE shop TO Weekly
GO
EXEC sp_readerrorlog 0, 1, 'Database backed up', 'weekly'
GO
-- Old history goes; everything here is of today.
EXECUTE msdb.dbo.sp_delete_backuphistory @oldest_date = '2000-01-01'
SELECT COUNT(*) AS sets FROM msdb.dbo.backupset WHERE database_name = N'shop'
EXEC msdb.dbo.sp_delete_database_backuphistory @database_name = N'shop'
SELECT COUNT(*) AS sets FROM msdb.dbo.backupset WHERE database_name = N'shop'
EXEC sp_delete_backuphistory
EXEC sp_delete_backuphistory 'the day before'
GO
