//! Procedures of SQL Server that this server does not have: they are refused by name, not as unknown.
//!
//! Invariants
//! - The list is sorted, and each name is there once, in lower case.
//!
//! Leaves to others: procedures that are there (`procedure.rs`).

/// Procedures about what there is not here: jobs, mail, the operating system, logins, other servers, the registry.
const PROCEDURES: &[&str] = &[
    "sp_add_alert",
    "sp_add_category",
    "sp_add_job",
    "sp_add_jobschedule",
    "sp_add_jobserver",
    "sp_add_jobstep",
    "sp_add_log_shipping_primary_database",
    "sp_add_log_shipping_secondary_database",
    "sp_add_notification",
    "sp_add_operator",
    "sp_add_schedule",
    "sp_addextendedproperty",
    "sp_addlinkedserver",
    "sp_addlinkedsrvlogin",
    "sp_addlogin",
    "sp_addmessage",
    "sp_addrolemember",
    "sp_addsrvrolemember",
    "sp_addtype",
    "sp_adduser",
    "sp_attach_db",
    "sp_attach_schedule",
    "sp_attach_single_file_db",
    "sp_bindefault",
    "sp_change_users_login",
    "sp_changedbowner",
    "sp_create_plan_guide",
    "sp_cycle_agent_errorlog",
    "sp_cycle_errorlog",
    "sp_dboption",
    "sp_delete_alert",
    "sp_delete_category",
    "sp_delete_job",
    "sp_delete_jobschedule",
    "sp_delete_jobstep",
    "sp_delete_operator",
    "sp_delete_schedule",
    "sp_depends",
    "sp_detach_db",
    "sp_detach_schedule",
    "sp_dropextendedproperty",
    "sp_dropmessage",
    "sp_dropserver",
    "sp_enum_sqlagent_subsystems",
    "sp_enumerrorlogs",
    "sp_estimate_data_compression_savings",
    "sp_executeexternalscript",
    "sp_help",
    "sp_help_job",
    "sp_help_jobactivity",
    "sp_help_jobhistory",
    "sp_help_jobschedule",
    "sp_help_jobstep",
    "sp_help_operator",
    "sp_helpconstraint",
    "sp_helpfilegroup",
    "sp_helpindex",
    "sp_helplogins",
    "sp_helprotect",
    "sp_helpserver",
    "sp_helpuser",
    "sp_linkedservers",
    "sp_lock",
    "sp_monitor",
    "sp_msforeachtable",
    "sp_msset_oledb_prop",
    "sp_notify_operator",
    "sp_oacreate",
    "sp_oadestroy",
    "sp_oagetproperty",
    "sp_oamethod",
    "sp_oasetproperty",
    "sp_procoption",
    "sp_recompile",
    "sp_rename",
    "sp_renamedb",
    "sp_resetstatus",
    "sp_send_dbmail",
    "sp_serveroption",
    "sp_set_session_context",
    "sp_set_sqlagent_properties",
    "sp_start_job",
    "sp_stop_job",
    "sp_testlinkedserver",
    "sp_trace_create",
    "sp_trace_setevent",
    "sp_trace_setfilter",
    "sp_trace_setstatus",
    "sp_update_alert",
    "sp_update_job",
    "sp_update_jobschedule",
    "sp_update_jobstep",
    "sp_update_operator",
    "sp_update_schedule",
    "sp_updateextendedproperty",
    "sp_updatestats",
    "sp_validatelogins",
    "sp_xml_preparedocument",
    "sp_xml_removedocument",
    "sysmail_add_account_sp",
    "sysmail_add_profile_sp",
    "sysmail_add_profileaccount_sp",
    "sysmail_delete_log_sp",
    "sysmail_delete_mailitems_sp",
    "sysmail_start_sp",
    "sysmail_stop_sp",
    "xp_availablemedia",
    "xp_cmdshell",
    "xp_enumerrorlogs",
    "xp_enumgroups",
    "xp_getnetname",
    "xp_instance_regaddmultistring",
    "xp_instance_regdeletekey",
    "xp_instance_regdeletevalue",
    "xp_instance_regenumkeys",
    "xp_instance_regenumvalues",
    "xp_instance_regwrite",
    "xp_logininfo",
    "xp_msver",
    "xp_regdeletekey",
    "xp_regdeletevalue",
    "xp_regwrite",
    "xp_sendmail",
    "xp_servicecontrol",
    "xp_sqlagent_enum_jobs",
    "xp_sqlagent_notify",
    "xp_sqlmaint",
    "xp_subdirs",
];

/// Whether SQL Server has a procedure of this name in `master` or `msdb`.
pub(super) fn is_known(name: &[String]) -> bool {
    let Some(last) = name.last() else {
        return false;
    };
    PROCEDURES
        .binary_search(&last.to_ascii_lowercase().as_str())
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted_and_has_each_name_once() {
        assert!(PROCEDURES.is_sorted_by(|a, b| a < b));
        assert!(PROCEDURES.iter().all(|name| *name == name.to_lowercase()));
    }
}
