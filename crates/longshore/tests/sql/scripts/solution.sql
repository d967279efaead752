-- A maintenance solution of our own: a log table, a procedure that runs and logs a command, and one that backs up.
SET ANSI_NULLS ON
GO
SET QUOTED_IDENTIFIER ON
GO
IF NOT EXISTS (SELECT * FROM sys.objects WHERE object_id = OBJECT_ID(N'[dbo].[WorkLog]') AND type in (N'U'))
BEGIN
CREATE TABLE [dbo].[WorkLog](
  [ID] [int] IDENTITY(1,1) NOT NULL,
  [DatabaseName] [sysname] NULL,
  [Command] [nvarchar](max) NOT NULL,
  [StartTime] [datetime2](7) NOT NULL,
  [EndTime] [datetime2](7) NULL,
  [ErrorNumber] [int] NULL,
 CONSTRAINT [PK_WorkLog] PRIMARY KEY CLUSTERED ([ID] ASC) WITH (PAD_INDEX = OFF, IGNORE_DUP_KEY = OFF)
)
END
GO
IF NOT EXISTS (SELECT * FROM sys.objects WHERE object_id = OBJECT_ID(N'[dbo].[RunLogged]') AND type in (N'P', N'PC'))
BEGIN
EXEC dbo.sp_executesql @statement = N'CREATE PROCEDURE [dbo].[RunLogged] AS'
END
GO
ALTER PROCEDURE [dbo].[RunLogged]
@DatabaseName nvarchar(max),
@Command nvarchar(max),
@Context nvarchar(max) = 'master'
AS
BEGIN
  SET NOCOUNT ON
  DECLARE @ID int, @Error int = 0, @Message nvarchar(max)
  DECLARE @sp_executesql nvarchar(max) = QUOTENAME(@Context) + '.sys.sp_executesql'
  SET @Message = 'Command: ' + @Command
  RAISERROR('%s', 10, 1, @Message) WITH NOWAIT
  INSERT INTO dbo.WorkLog (DatabaseName, Command, StartTime) VALUES (@DatabaseName, @Command, SYSDATETIME())
  SET @ID = SCOPE_IDENTITY()
  EXECUTE @sp_executesql @stmt = @Command
  SET @Error = @@ERROR
  UPDATE dbo.WorkLog SET EndTime = SYSDATETIME(), ErrorNumber = @Error WHERE ID = @ID
  SET @Message = 'Outcome: ' + CASE WHEN @Error = 0 THEN 'Succeeded' ELSE 'Failed' END
  RAISERROR('%s', 10, 1, @Message) WITH NOWAIT
  IF @Error <> 0
  BEGIN
    RETURN @Error
  END
END
GO
CREATE OR ALTER PROCEDURE dbo.BackupAll @Databases nvarchar(max) = 'USER_DATABASES', @Failed int = NULL OUTPUT
AS
BEGIN
  SET NOCOUNT ON
  DECLARE @Code int, @Name sysname, @Command nvarchar(max)
  DECLARE @Selected TABLE (ID int IDENTITY PRIMARY KEY, Name sysname NOT NULL, [Order] int, Done bit DEFAULT 0)
  SET @Failed = 0;
  WITH Items (StartPosition, EndPosition, Item) AS
  (
    SELECT 1, ISNULL(NULLIF(CHARINDEX(',', @Databases, 1), 0), LEN(@Databases) + 1),
           SUBSTRING(@Databases, 1, ISNULL(NULLIF(CHARINDEX(',', @Databases, 1), 0), LEN(@Databases) + 1) - 1)
    UNION ALL
    SELECT CAST(EndPosition AS int) + 1, ISNULL(NULLIF(CHARINDEX(',', @Databases, EndPosition + 1), 0), LEN(@Databases) + 1),
           SUBSTRING(@Databases, EndPosition + 1, ISNULL(NULLIF(CHARINDEX(',', @Databases, EndPosition + 1), 0), LEN(@Databases) + 1) - EndPosition - 1)
    FROM Items WHERE EndPosition < LEN(@Databases) + 1
  )
  INSERT INTO @Selected (Name)
  SELECT d.name FROM sys.databases d
  WHERE EXISTS (SELECT * FROM Items WHERE LTRIM(RTRIM(Item)) IN (d.name, 'USER_DATABASES'))
  OPTION (MAXRECURSION 0);
  WITH s AS (SELECT [Order], ROW_NUMBER() OVER (ORDER BY Name DESC) AS Place FROM @Selected)
  UPDATE s SET [Order] = Place
  WHILE (1 = 1)
  BEGIN
    SELECT TOP 1 @Name = Name FROM @Selected WHERE Done = 0 ORDER BY [Order]
    IF @@ROWCOUNT = 0 BREAK
    SET @Command = 'BACKUP DATABASE ' + QUOTENAME(@Name) + ' TO DISK = ''' + @Name + '_FULL.bak'' WITH CHECKSUM, COMPRESSION'
    EXECUTE @Code = dbo.RunLogged @DatabaseName = @Name, @Command = @Command
    IF @Code <> 0 SET @Failed += 1
    UPDATE @Selected SET Done = 1 WHERE Name = @Name
  END
  RETURN @Failed
END
GO
DECLARE @Status int, @Failed int
EXEC @Status = dbo.BackupAll @Databases = 'shop, stock', @Failed = @Failed OUTPUT
SELECT @Status AS [Status], @Failed AS Failed
EXEC dbo.RunLogged 'gone', 'BACKUP DATABASE gone TO DISK = ''gone.bak'''
SELECT ID, DatabaseName, ErrorNumber, CASE WHEN EndTime >= StartTime THEN 1 ELSE 0 END AS Timed FROM dbo.WorkLog ORDER BY ID
SELECT name, type FROM sys.objects ORDER BY object_id
GO
