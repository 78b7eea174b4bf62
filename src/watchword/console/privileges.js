/** The display names of the privileges, as `listPrivileges` has them. @type {Record<string, string>} */
const NAMES = {
  GENERATE_PERSONAL_ACCESS_TOKENS: "Generate Personal Access Tokens",
  MANAGE_ACCESS_TOKENS: "Manage All Access Tokens",
  MANAGE_SERVICE_ACCOUNTS: "Manage Service Accounts",
  INTROSPECT_TOKENS: "Introspect Tokens",
  MANAGE_POLICIES: "Manage Policies",
  VIEW_POLICIES: "View Policies",
  GET_ES_TASK_STATUS_PRIVILEGE: "Get search-index task status",
  GET_TIMESERIES_INDEX_SIZES_PRIVILEGE: "Get time series index sizes",
  TRUNCATE_TIMESERIES_INDEX_PRIVILEGE: "Truncate time series index",
  RELEASE_RETENTION_HOLDS: "Release Retention Holds",
  MANAGE_SYSTEM_OPERATIONS: "Manage System Operations",
  VIEW_AUDIT_LOG: "View Audit Log",
  MANAGE_WEBHOOKS: "Manage Webhooks",
};

/** "View Audit Log" of VIEW_AUDIT_LOG. @param {string} word */
export const privilegeName = (word) => (Object.hasOwn(NAMES, word) ? NAMES[word] : word);
