-- What diagnostic procedures, reports and maintenance plans ask. Every answer is printed, so that both doors can be held against it.
SET NOCOUNT ON;
EXECUTE master.dbo.xp_create_subdir N'plan/shop'
GO
BACKUP DATABASE [shop] TO  DISK = N'plan/shop/shop_backup.bak' WITH NOFORMAT, NOINIT,  NAME = N'shop_backup', SKIP, REWIND, NOUNLOAD, CHECKSUM
GO
declare @backupSetId as int
select @backupSetId = position from msdb..backupset where database_name=N'shop' and backup_set_id=(select max(backup_set_id) from msdb..backupset where database_name=N'shop' )
if @backupSetId is null begin raiserror(N'Verify failed. Backup information for database ''shop'' not found.', 16, 1) end
RESTORE VERIFYONLY FROM  DISK = N'plan/shop/shop_backup.bak' WITH  FILE = @backupSetId,  NOUNLOAD,  NOREWIND
GO
DBCC CHECKDB(N'shop')  WITH NO_INFOMSGS
GO
DBCC CHECKDB ([shop]);
IF @@ERROR = 0 PRINT 'sound';
GO
-- Findings that a diagnostic procedure collects, the way it reads them.
CREATE TABLE #Results (ID int IDENTITY(1,1), CheckID int, DatabaseName nvarchar(128), Priority tinyint, Finding varchar(200), Details nvarchar(4000));
DECLARE @StringToExecute nvarchar(4000);
DECLARE @SkipChecks TABLE (DatabaseName nvarchar(128), CheckID int);
INSERT INTO #Results (CheckID, DatabaseName, Priority, Finding, Details)
SELECT 1 AS CheckID, d.[name] AS DatabaseName, 1, 'Backups Not Performed Recently', 'Last backed up: ' + COALESCE(CAST(MAX(b.backup_finish_date) AS varchar(25)), 'never')
FROM master.sys.databases d
LEFT OUTER JOIN msdb.dbo.backupset b ON d.name COLLATE SQL_Latin1_General_CP1_CI_AS = b.database_name COLLATE SQL_Latin1_General_CP1_CI_AS AND b.type = 'D' AND b.server_name = SERVERPROPERTY('ServerName')
WHERE d.database_id <> 2 AND d.state NOT IN (1, 6, 10) AND d.is_in_standby = 0 AND d.source_database_id IS NULL AND d.name NOT IN ('master')
  AND d.name NOT IN (SELECT DISTINCT DatabaseName FROM @SkipChecks WHERE CheckID IS NULL OR CheckID = 1)
GROUP BY d.name
HAVING MAX(b.backup_finish_date) <= DATEADD(dd, -7, GETDATE()) OR MAX(b.backup_finish_date) IS NULL;
SET @StringToExecute = N'INSERT INTO #Results (CheckID, Priority, Finding, Details)
    SELECT 2, 200, ''Backup Compression Default Off'', (''Value in use: '' + CAST(value_in_use AS varchar(10)))
    FROM sys.configurations WHERE name = ''backup compression default'' AND CAST(value_in_use AS int) = 0 OPTION (RECOMPILE);';
EXECUTE (@StringToExecute);
DECLARE @line nvarchar(400);
SELECT TOP (1) @line = CONCAT(Priority, ' ', Finding, ' ', DatabaseName, ' ', Details) FROM #Results ORDER BY Priority, Finding, ID;
PRINT @line;
SELECT TOP (1) @line = CONCAT(Priority, ' ', Finding, ': ', Details) FROM #Results ORDER BY Priority DESC;
PRINT @line;
GO
-- A table of a mail, with columns named by texts.
DECLARE @r TABLE (db sysname, kind char(1), finished datetime, mb decimal(9,1));
INSERT @r VALUES ('shop', 'D', '20270102 03:04:05', 12.5), ('<web & co>', 'L', '20270103 00:00:00', NULL);
PRINT CAST((SELECT td = db, '', 'td' = ISNULL(CONVERT(varchar(20), mb), '-'), '', td = CONVERT(varchar(16), finished, 120)
    FROM @r ORDER BY finished FOR XML PATH('tr'), TYPE) AS nvarchar(max));
GO
-- Parameters in XML.
DECLARE @x xml = N'<plan owner="dba"><backup db="shop" type="full"><target>/mnt/a</target><target>/mnt/b</target></backup><backup db="web" type="log" keep="7"/></plan>';
IF @x.exist('/plan/backup[@db="shop" and @type="full"]') = 1 PRINT 'full of shop';
IF @x.exist('/plan/backup[@db="web" and @type="full"]') = 0 PRINT 'no full of web';
DECLARE @list nvarchar(400) = N'';
SELECT @list += CASE WHEN ROW_NUMBER() OVER (ORDER BY t.c.value('.', 'nvarchar(50)')) = 1 THEN N'' ELSE N', ' END + t.c.value('.', 'nvarchar(50)') FROM @x.nodes('/plan/backup/target') AS t(c);
PRINT @list;
GO
-- An inventory that is merged, and what happened to it.
CREATE TABLE #inventory (name sysname PRIMARY KEY, size_mb decimal(9,2), seen date, note varchar(20) NULL);
INSERT #inventory VALUES ('a', 1, '20270101', NULL), ('b', 2, '20270101', NULL), ('old', 9, '20260101', NULL);
DECLARE @log TABLE (act nvarchar(10), name sysname NULL, was decimal(9,2) NULL, now decimal(9,2) NULL, src varchar(10) NULL);
MERGE INTO #inventory WITH (HOLDLOCK) AS t
USING (VALUES (N'a', 1.5, 'scan'), (N'c', 3, 'scan'), (N'b', 2, 'list')) AS s (name, size_mb, src) ON t.name = s.name
WHEN MATCHED AND t.size_mb <> s.size_mb THEN UPDATE SET size_mb = s.size_mb, seen = '20270201', note = s.src
WHEN NOT MATCHED BY TARGET THEN INSERT (name, size_mb, seen, note) VALUES (s.name, s.size_mb, '20270201', s.src)
WHEN NOT MATCHED BY SOURCE AND t.seen < '20270101' THEN DELETE
OUTPUT $action, COALESCE(inserted.name, deleted.name), deleted.size_mb, inserted.size_mb, s.src INTO @log (act, name, was, now, src);
PRINT CONCAT('changed ', @@ROWCOUNT);
DECLARE @said nvarchar(max);
SELECT @said = STRING_AGG(CONCAT(act, ' ', name, ' ', was, '>', now, ' ', src), '; ') WITHIN GROUP (ORDER BY act, name) FROM @log;
PRINT @said;
MERGE TOP (1) #inventory AS t USING (SELECT N'z1' AS name UNION ALL SELECT N'z2') AS s ON t.name = s.name WHEN NOT MATCHED THEN INSERT (name, seen) VALUES (s.name, '20270301');
PRINT CONCAT('one of two: ', @@ROWCOUNT);
GO
-- Log shipping and jobs that are not there.
IF NOT EXISTS (SELECT 1 FROM msdb.dbo.log_shipping_monitor_primary AS ls WHERE DATEDIFF(MINUTE, ls.last_backup_date, GETDATE()) > ls.backup_threshold) PRINT 'no log shipping is late';
IF NOT EXISTS (SELECT 1 FROM msdb.dbo.sysjobactivity AS ja JOIN msdb.dbo.sysjobs AS s ON s.job_id = ja.job_id WHERE ja.session_id = (SELECT MAX(session_id) FROM msdb.dbo.syssessions)) PRINT 'no job runs';
BEGIN TRY BACKUP LOG [shop] TO DISK = N'plan/shop/shop.trn' WITH COMPRESSION, INIT, STATS = 25 END TRY
BEGIN CATCH PRINT CONCAT('log backup: ', ERROR_NUMBER(), ' ', ERROR_MESSAGE()) END CATCH
GO
-- Forms of SQL Server 2022.
DECLARE @out nvarchar(400);
SELECT @out = STRING_AGG(CAST(value AS varchar(9)), ',') FROM GENERATE_SERIES(1, 10, 4);
PRINT @out;
SELECT @out = STRING_AGG(CONCAT(g, total, r), ' ') FROM (SELECT v.g, SUM(v.n) OVER w AS total, ROW_NUMBER() OVER (w ORDER BY v.n DESC) AS r FROM (VALUES ('x', 1), ('x', 2), ('y', 5)) AS v(g, n) WINDOW w AS (PARTITION BY v.g)) AS q;
PRINT @out;
IF NULL IS NOT DISTINCT FROM NULL PRINT CONCAT(TRIM('.' FROM '..a.b..'), ' ', LTRIM('xxa', 'x'));
GO
