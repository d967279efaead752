-- Thirty-seven backups: one as it comes, then stripes by buffers by transfer sizes.
SET NOCOUNT ON;
DECLARE @stripes int = 1, @buffers int, @size int, @sql nvarchar(max), @devices nvarchar(max), @i int;
BACKUP DATABASE shop TO DISK = 'NUL' WITH COPY_ONLY, NAME = 'base';
WHILE @stripes <= 4
BEGIN
    SET @buffers = 10;
    WHILE @buffers <= 50
    BEGIN
        SET @size = 65536;
        WHILE @size <= 4194304
        BEGIN
            SET @devices = 'DISK = ''NUL''';
            SET @i = 1;
            WHILE @i < @stripes
            BEGIN
                SET @devices = @devices + ', DISK = ''NUL''';
                SET @i = @i + 1;
            END;
            SET @sql = 'BACKUP DATABASE shop TO ' + @devices + ' WITH COPY_ONLY, COMPRESSION, NAME = ''sweep ' +
                CAST(@stripes AS varchar(10)) + ''', BUFFERCOUNT = ' + CAST(@buffers AS varchar(10)) +
                ', MAXTRANSFERSIZE = ' + CONVERT(varchar(10), @size);
            EXEC (@sql);
            SET @size = @size * 4;
        END;
        SET @buffers = @buffers + 20;
    END;
    SET @stripes = @stripes * 2;
END;
GO
SELECT name, COUNT(*) AS backups, COUNT(DISTINCT media_set_id) AS media
FROM msdb.dbo.backupset
GROUP BY name
HAVING COUNT(*) > 0
ORDER BY backups, name;
SELECT COUNT(*) AS backups, MAX(f.stripes) AS stripes
FROM msdb.dbo.backupset AS s
JOIN (SELECT media_set_id, COUNT(*) AS stripes FROM msdb.dbo.backupmediafamily GROUP BY media_set_id) AS f
    ON f.media_set_id = s.media_set_id;
GO
