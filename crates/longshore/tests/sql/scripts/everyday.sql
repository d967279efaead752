-- Reports and procedures as administrators write them. Every answer is printed, so that both doors can be held against it.
SET NOCOUNT ON;
BACKUP DATABASE shop TO DISK = 'everyday.bak' WITH INIT, NAME = 'first';
BACKUP DATABASE shop TO DISK = 'everyday.bak' WITH NOINIT, COPY_ONLY, NAME = 'second';
GO
-- The last backup of each database, with its age as a time of day.
DECLARE @line nvarchar(400);
WITH newest AS (
    SELECT database_name, name, backup_start_date, backup_finish_date,
           ROW_NUMBER() OVER (PARTITION BY database_name ORDER BY backup_set_id DESC) AS place
    FROM msdb.dbo.backupset)
SELECT @line = CONCAT(database_name, ': ', name, ', took less than a minute: ',
    IIF(CONVERT(varchar(8), backup_finish_date - backup_start_date, 108) < '00:01:00', 'yes', 'no'))
FROM newest WHERE place = 1;
PRINT @line;
PRINT CONVERT(varchar(12), CAST('2027-01-31T12:00:00' AS datetime) - CAST('2027-01-31T09:30:15' AS datetime), 114);
PRINT CONVERT(varchar(19), CAST(FLOOR(CAST(CAST('2027-01-31T23:10:00' AS datetime) AS float)) AS datetime), 120);
PRINT CAST(CAST('2027-01-31T23:10:00' AS datetime) AS int);
GO
-- Numbers as texts.
PRINT CAST(CAST(123456789 AS float) AS varchar(30)) + ' ' + CONVERT(varchar(30), 1e10, 1) + ' ' + CONVERT(varchar(30), 0.1e0, 2);
PRINT CAST(1.0 / 3 AS varchar(20)) + ' ' + CAST(CAST(10 AS decimal(10, 2)) / 3 AS varchar(20)) + ' ' + CAST(100 * 1.0 / 7 AS varchar(20));
PRINT CONCAT(ROUND(2.567, 1, 1), ' ', ROUND(-1234, -2, 1), ' ', GREATEST(1, 7, 3), ' ', LEAST('b', 'A', NULL));
PRINT QUOTENAME('a)b', '(') + QUOTENAME('x', '{') + QUOTENAME('a>b', '<');
PRINT CONCAT(ISNUMERIC('$1,234.50'), ISNUMERIC('-'), ISNUMERIC('1e'), ISNUMERIC(''), ISDATE('2027'), ISDATE('2027-02-30'));
PRINT FORMATMESSAGE('step %i of %-5s|%05d', 3, 'seven', 42);
PRINT 'one text \
in two lines';
IF 'nightly  ' LIKE 'nightly' PRINT 'blanks at the end do not count';
IF N'nightly  ' LIKE N'nightly' PRINT 'wrong' ELSE PRINT 'but do with N';
PRINT FORMAT(CAST('13:05:09' AS time), 'hh\:mm');
GO
-- What a conversion says when it fails.
BEGIN TRY PRINT CAST('x' AS int) END TRY BEGIN CATCH PRINT CONCAT(ERROR_NUMBER(), ' ', ERROR_MESSAGE()) END CATCH
BEGIN TRY PRINT CAST(N'x' AS int) END TRY BEGIN CATCH PRINT CONCAT(ERROR_NUMBER(), ' ', ERROR_MESSAGE()) END CATCH
BEGIN TRY PRINT CAST('2027-02-31' AS datetime) END TRY BEGIN CATCH PRINT CONCAT(ERROR_NUMBER(), ' ', ERROR_MESSAGE()) END CATCH
BEGIN TRY PRINT CAST('2027-02-31' AS date) END TRY BEGIN CATCH PRINT CONCAT(ERROR_NUMBER(), ' ', ERROR_MESSAGE()) END CATCH
BEGIN TRY PRINT CAST('x' AS uniqueidentifier) END TRY BEGIN CATCH PRINT CONCAT(ERROR_NUMBER(), ' ', ERROR_MESSAGE()) END CATCH
BEGIN TRY PRINT DATEDIFF(ms, '19000101', '20270101') END TRY BEGIN CATCH PRINT CONCAT(ERROR_NUMBER(), ' ', ERROR_MESSAGE()) END CATCH
DECLARE @one int;
BEGIN TRY SET @one = (SELECT n FROM (VALUES (1), (2)) AS v(n)) END TRY BEGIN CATCH PRINT CONCAT(ERROR_NUMBER(), ' ', LEFT(ERROR_MESSAGE(), 36)) END CATCH
BEGIN TRY SELECT @one = n FROM (VALUES (1)) AS v(n) WHERE n = (SELECT m FROM (VALUES (1), (2)) AS w(m)) END TRY BEGIN CATCH PRINT ERROR_NUMBER() END CATCH
SET @one = (SELECT n FROM (VALUES (5)) AS v(n) WHERE n > 9); PRINT ISNULL(CAST(@one AS varchar(9)), 'no row is NULL');
DECLARE @strict TABLE (n int NOT NULL);
BEGIN TRY INSERT @strict VALUES (NULL) END TRY BEGIN CATCH PRINT CONCAT(ERROR_NUMBER(), ' caught, and nothing else is said') END CATCH
PRINT CONCAT('rows: ', @@ROWCOUNT);
PRINT CAST(CAST('10/31/27' AS datetime) AS varchar(30)) + ' ' + CONVERT(varchar(10), CONVERT(datetime, '31.12.49', 4), 120) + ' ' + CONVERT(varchar(10), CAST('Jan 31 2027  3:04PM' AS datetime), 108);
GO
-- Totals of several groupings, in the order of their levels.
CREATE TABLE #sizes (db sysname, kind char(1), mb int);
INSERT #sizes VALUES ('a', 'D', 10), ('a', 'L', 1), ('b', 'D', 20), ('b', 'L', 2);
DECLARE @report nvarchar(max) = '';
DECLARE rows_of CURSOR LOCAL FAST_FORWARD FOR
    SELECT CONCAT(ISNULL(db, '*'), '/', ISNULL(kind, '*'), '=', SUM(mb), '@', GROUPING_ID(db, kind))
    FROM #sizes GROUP BY GROUPING SETS ((db, kind), (db), ()) ORDER BY GROUPING(db), db, GROUPING(kind), kind;
DECLARE @row nvarchar(100);
OPEN rows_of;
FETCH NEXT FROM rows_of INTO @row;
WHILE @@FETCH_STATUS = 0
BEGIN
    SET @report += @row + ' ';
    FETCH NEXT FROM rows_of INTO @row;
END
PRINT @report;
DECLARE @page int = 2, @size int = 2, @names nvarchar(100);
SELECT @names = STRING_AGG(n, ',') FROM (SELECT CONCAT(db, kind) AS n FROM #sizes ORDER BY db, kind OFFSET (@page - 1) * @size ROWS FETCH NEXT @size ROWS ONLY) AS p;
PRINT @names;
SELECT @names = STRING_AGG(CONCAT(mb, ':', r), ' ') FROM (SELECT mb, CAST(CUME_DIST() OVER (ORDER BY mb) AS decimal(4, 2)) AS r FROM #sizes) AS c;
PRINT @names;
GO
-- Columns that a table computes.
CREATE TABLE dbo.run_times (id int IDENTITY, began datetime NOT NULL, ended datetime NULL, seconds AS DATEDIFF(SECOND, began, ended), minutes AS CAST(DATEDIFF(SECOND, began, ended) / 60.0 AS decimal(9, 2)) PERSISTED);
INSERT dbo.run_times (began, ended) VALUES ('20270131 01:00', '20270131 01:01:30');
INSERT dbo.run_times VALUES ('20270131 02:00', NULL);
UPDATE dbo.run_times SET ended = DATEADD(MINUTE, 3, began) WHERE seconds IS NULL;
DECLARE @t nvarchar(200);
SELECT @t = STRING_AGG(CONCAT(id, '=', seconds, '/', minutes), ' ') FROM dbo.run_times WHERE minutes > 1;
PRINT @t;
BEGIN TRY UPDATE dbo.run_times SET seconds = 1 END TRY BEGIN CATCH PRINT CONCAT(ERROR_NUMBER(), ' ', ERROR_MESSAGE()) END CATCH
ALTER TABLE dbo.run_times ADD is_long AS CASE WHEN DATEDIFF(SECOND, began, ended) > 100 THEN 'long' ELSE 'short' END;
GO
DECLARE @t nvarchar(200);
SELECT @t = STRING_AGG(is_long, ' ') FROM dbo.run_times;
PRINT @t;
BEGIN TRY ALTER TABLE dbo.run_times DROP COLUMN ended END TRY BEGIN CATCH PRINT CONCAT(ERROR_NUMBER(), ' ', ERROR_MESSAGE()) END CATCH
BEGIN TRY CREATE TABLE #age (born datetime, age AS DATEDIFF(DAY, born, GETDATE())) END TRY BEGIN CATCH PRINT CONCAT(ERROR_NUMBER(), ' ', ERROR_MESSAGE()) END CATCH
BEGIN TRY CREATE TABLE #checked (n int CHECK (n < (SELECT 5))) END TRY BEGIN CATCH PRINT CONCAT(ERROR_NUMBER(), ' ', ERROR_MESSAGE()) END CATCH
DROP TABLE dbo.run_times;
GO
-- Times of other places, hashes, JSON and XML.
DECLARE @utc datetime2(0) = '2027-07-01T12:00:00', @json nvarchar(max) = N'{"db": "shop", "runs": 1, "tags": ["a"]}';
PRINT @utc AT TIME ZONE 'UTC' AT TIME ZONE 'Central European Standard Time';
PRINT CAST(CAST('2027-03-28T02:30:00' AS datetime2(0)) AT TIME ZONE 'W. Europe Standard Time' AS varchar(40));
PRINT CAST(CAST('2027-10-31T02:30:00' AS datetime2(0)) AT TIME ZONE 'W. Europe Standard Time' AS varchar(40));
PRINT SWITCHOFFSET(CAST('2027-07-01T12:00:00+02:00' AS datetimeoffset(0)), '-05:00');
BEGIN TRY PRINT @utc AT TIME ZONE 'Nowhere' END TRY BEGIN CATCH PRINT CONCAT(ERROR_NUMBER(), ' ', ERROR_MESSAGE()) END CATCH
PRINT CONCAT(DATETIMEFROMPARTS(2027, 1, 31, 4, 5, 6, 7), ' ', TIMEFROMPARTS(23, 59, 58, 5, 1), ' ', DATETRUNC(MONTH, @utc));
PRINT CONVERT(varchar(64), HASHBYTES('SHA2_256', 'abc'), 2);
SET @json = JSON_MODIFY(JSON_MODIFY(JSON_MODIFY(@json, '$.runs', 2), '$.last', 'a/b'), 'append $.tags', 'b');
PRINT @json;
PRINT JSON_MODIFY(JSON_MODIFY(@json, '$.db', NULL), '$.tags', JSON_QUERY('[1,{"x":[]}]'));
DECLARE @xml xml = N'<jobs><job name="full" on="1"><step>BACKUP</step></job><job name="log" on="0"/><job name="path/b" on="1"/></jobs>';
PRINT CONCAT(@xml.value('count(/jobs/job)', 'int'), ' ', @xml.value('count(//job[@on=1])', 'int'), ' ', @xml.exist('/jobs/job[@name="none"]'), ' ',
    @xml.value('(/jobs/job[@name="full"]/step)[1]', 'varchar(20)'), ' ', @xml.value('(/jobs/job[@name="path/b"]/@on)[1]', 'int'), ' ', @xml.value('count(//job//@name)', 'int'));
SET @xml = N'<a>x<![CDATA[<y>]]>z<!-- no text --></a>';
PRINT @xml.value('(/a/text())[1]', 'varchar(20)');
GO
-- Views and their rules.
CREATE VIEW dbo.all_sets AS SELECT name, type FROM msdb.dbo.backupset;
GO
CREATE VIEW dbo.ordered AS SELECT name FROM msdb.dbo.backupset ORDER BY name;
GO
ALTER VIEW dbo.all_sets AS SELECT name FROM dbo.all_sets;
GO
CREATE TABLE #mine (n int);
GO
CREATE VIEW dbo.of_mine AS SELECT n FROM #mine;
GO
CREATE PROCEDURE dbo.keeps @days int, @place nvarchar(260) = N'/mnt', @count bigint OUTPUT AS SET @count = @days;
GO
DECLARE @p nvarchar(300);
SELECT @p = STRING_AGG(CONCAT(p.name, ' ', p.max_length, IIF(p.is_output = 1, ' out', '')), ', ') WITHIN GROUP (ORDER BY p.parameter_id)
FROM sys.parameters AS p WHERE p.object_id = OBJECT_ID('dbo.keeps');
PRINT @p;
DROP PROCEDURE dbo.keeps;
DROP VIEW dbo.all_sets;
GO
SELECT n FROM (SELECT n FROM (VALUES (1)) AS v(n) ORDER BY n) AS d;
GO
SELECT TRY_PARSE('1' AS int);
GO
