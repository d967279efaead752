-- Second part, after a restart: the option is on, the accelerator has no mode yet.
SELECT accelerator, mode_desc, mode_reason_desc FROM sys.dm_server_accelerator_status WHERE accelerator = 'QAT';
GO
ALTER SERVER CONFIGURATION SET HARDWARE_OFFLOAD = ON (ACCELERATOR = QAT, MODE = SOFTWARE);
GO
ALTER SERVER CONFIGURATION SET HARDWARE_OFFLOAD ON (ACCELERATOR = QAT, MODE = SOFTWARE);
GO
ALTER SERVER CONFIGURATION SET HARDWARE_OFFLOAD = ON (ACCELERATOR = ABACUS);
GO
EXEC sp_configure 'backup compression algorithm', 2;
RECONFIGURE;
GO
