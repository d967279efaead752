-- A tour of an accelerated backup, first part: hardware offload is an advanced option, and needs a restart.
SELECT name, value, value_in_use FROM sys.configurations WHERE name = 'hardware offload enabled';
GO
EXEC sp_configure 'hardware offload enabled', 1;
GO
sp_configure 'show advanced options', 1;
GO
RECONFIGURE;
GO
sp_configure 'hardware offload enabled', 1;
GO
RECONFIGURE WITH OVERRIDE;
GO
sp_configure 'hardware';
GO
SELECT accelerator, mode_desc, mode_reason_desc FROM sys.dm_server_accelerator_status WHERE accelerator = 'qat';
GO
