import { type ErrorEntry, terminal, transient } from './entry.ts';

/** Errors that a process can encounter at startup: in its configuration, its data folder and its servers. */
export const startErrors = {
  INVALID_CONFIG: terminal(
    500,
    'The configuration has {count} error(s):\n{errors}',
    'Correct the variables and restart.',
  ),
  DATA_FOLDER_IN_USE: terminal(
    500,
    'The data folder {folder} is in use by another runlake process: {holder}.',
    'Stop that process, or set RUNLAKE_DATA_DIR to another folder. A new container can use the folder when the former one has stopped: with Kubernetes, set the strategy of the deployment to Recreate.',
  ),
  LOG_IN_USE: terminal(
    500,
    'Another runlake process uses the database {database}; only one process at a time can run the in-process event log.',
    'Stop that process, or set RUNLAKE_DATABASE_URL to another database.',
  ),
  EVENTS_NOT_STORED: terminal(
    500,
    'The in-process event log has events of {topic} that are not stored yet.',
    'Start `runlake all` once without RUNLAKE_KAFKA_BROKERS, and stop it with SIGTERM when it is ready: it stores them first.',
  ),
  DATA_FOLDER_UNUSABLE: terminal(
    500,
    'The data folder {folder} cannot be used: {reason}.',
    'Make it a folder that this user can write to, run the command as the user who owns it, or set RUNLAKE_DATA_DIR to another one.',
  ),
  ENGINE_START_FAILED: terminal(500, '{engine} did not start: {reason}', 'Run `runlake doctor`.'),
  ENGINE_PACKAGE_MISSING: terminal(
    500,
    '{variable} is not set, and the package {package} is not installed for this platform.',
    'Install the optional dependencies, or set {variable}.',
  ),
  STACK_TOOL_MISSING: terminal(500, '{part} needs {program}, which is not on PATH.', 'Install {install}.'),
  STACK_DOWNLOAD_FAILED: terminal(
    500,
    '{part} cannot be downloaded: {program} failed: {reason}',
    'Check the network and the configuration of {program}, and retry.',
  ),
  STACK_CHECKSUM_MISMATCH: terminal(
    500,
    '{path} is not the pinned file of {part}: its SHA-256 is {found}, expected {pinned}.',
    'Delete its folder so that it is downloaded again. If the error persists, the upstream file has changed: find out why before you change the pin.',
  ),
  STACK_PORT_IN_USE: terminal(
    500,
    '{part} cannot listen on port {port}: the port is in use.',
    'Stop the program that uses it, or set {variable} to another port; 0 picks a free port.',
  ),
  STACK_START_FAILED: terminal(500, 'The stack did not start:\n{reasons}', 'See {log}.'),
  STACK_FOLDER_IN_USE: terminal(
    500,
    'Another process ({pid}) is starting or stopping the stack in {folder}.',
    'Wait for it, or stop the stack with `make stack-down`.',
  ),
  ADDRESS_REQUIRED: terminal(
    500,
    'The role {role} requires {variables}; only `runlake all` works without them.',
    'Set {variables}, or run `runlake all`.',
  ),
  PART_UNUSABLE: terminal(500, '{reason}.', '{remedy}'),
  TLS_FILE_UNUSABLE: terminal(
    500,
    'The TLS file {file} cannot be used: {reason}.',
    'Set RUNLAKE_TLS_CA_FILE, or sslrootcert, sslcert or sslkey in RUNLAKE_DATABASE_URL, to a PEM file that this user can read.',
  ),
  NOT_RUNNING: terminal(
    500,
    'No runlake process is running on the data folder {folder}.',
    'Start it, or set RUNLAKE_DATA_DIR.',
  ),
  INSTANCE_NOT_READY: transient(
    503,
    'Process {pid} uses the data folder {folder}, but is still starting, or is stopping.',
    'Wait until it prints its address. If it does not, see its log and `runlake doctor`.',
  ),
  STORE_NEWER: terminal(
    500,
    'The {store} schema is at version {found}; this release of Runlake supports versions up to {known}.',
    'Run the newer release, or restore a backup that was made before the upgrade.',
  ),
  STORE_TOO_OLD: terminal(
    500,
    '{store} is version {found}; Runlake requires {needed} or newer.',
    'Upgrade the server in {variable}, or unset {variable} to use the embedded one.',
  ),
  MIGRATION_CHANGED: terminal(
    500,
    'The {store} migration {name} is applied, but it is not a migration of this release: the data was made by a development version of Runlake, or a migration file was edited.',
    'If a development version made the data, no release can upgrade it: export what you need with that version, then delete the data folder or both databases and start again. If a migration file was edited, restore the original file.',
  ),
  MIGRATION_FAILED: terminal(
    500,
    'The {store} migration {name} failed: {reason}',
    'Correct the cause and restart; Runlake resumes with this migration.',
  ),
  HOST_UNUSABLE: terminal(
    500,
    'The server cannot listen on port {port} of {settings}_HOST={host} ({reason}).',
    'Set {settings}_HOST to an address of this machine, and {settings}_PORT to a port that this user may bind.',
  ),
  METRICS_PORT_UNUSABLE: terminal(
    500,
    'Metrics and readiness cannot be served on port {port} of {host} ({reason}).',
    'Set RUNLAKE_METRICS_HOST to an address of this machine, and RUNLAKE_METRICS_PORT to a free port.',
  ),
  PORT_IN_USE: terminal(
    500,
    'Port {port} on {host} is in use.',
    'Stop the program that listens there, or set {settings}_PORT.',
  ),
  SCHEMA_REFUSED: terminal(
    500,
    'The schema registry rejected the schema of {subject}: {reason}.',
    'Run the newest release in all roles; set the compatibility of the subject to FULL.',
  ),
  TOPIC_UNUSABLE: terminal(
    500,
    'The Kafka topic {topic} cannot be used: its {property} is {found}; required: {needed}.',
    'Alter the topic, or change {variable}; Runlake does not alter existing topics.',
  ),
  SCHEMA_MISMATCH: terminal(
    500,
    'The schemas of topic {topic} and table {table} do not match: {reason}',
    'Run `runlake migrate`, and the same release in all roles.',
  ),
} as const satisfies Record<string, ErrorEntry>;
