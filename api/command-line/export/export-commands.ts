import { type Command, Option } from 'commander';
import type { CreateOptions } from './create-cancel.ts';
import type { DestinationOptions } from './destinations.ts';
import type { ListOptions } from './list.ts';

const json = ['--json', 'as JSON, in the form of the API'] as const;
const workspace = ['--workspace <name or id>', 'required if there are several workspaces'] as const;
const statuses = ['CREATED', 'RUNNING', 'COMPLETED', 'FAILED', 'CANCELLED', 'TIMEDOUT'];

/** Adds the commands `runlake export …`. The code of a command is loaded only when the command runs. */
export function addExportCommands(program: Command): void {
  const exportCommand = program
    .command('export')
    .description('bulk exports: runs as Parquet files in a bucket, also while an instance runs')
    .addHelpText(
      'after',
      `
These commands find the running instance through the data folder, or through the same variables as the roles. \`runlake all\`
or \`runlake exports\` executes the exports, so one of them must run.

Examples:
  runlake export destinations create --name lake --bucket traces --region eu-central-1 --credentials-stdin < keys.json
  runlake export create --project my-agent --destination lake --start 2026-01-01 --end 2026-02-01 --watch
  runlake export list --status RUNNING
  runlake export cancel 0b6f1c4e-2f57-4a51-9a2e-6d1c8a3f7e90`,
    );
  exportCommand
    .command('create')
    .description('export the runs of a tracing project, once or on a schedule')
    .requiredOption('--project <name or id>', 'the tracing project')
    .requiredOption('--destination <name or id>', 'the destination; see `runlake export destinations list`')
    .requiredOption('--start <time>', 'export runs that started at or after this time; UTC if no zone is given')
    .option('--end <time>', 'export runs that started before this time, once')
    .option('--interval-hours <hours>', 'instead of --end: a schedule with one export per interval (1 to 168)')
    .option('--filter <condition>', 'only runs that match a condition in the filter language, such as eq(name, "a")')
    .option('--fields <names>', 'columns of the files, separated by commas; default: all')
    .addOption(
      new Option('--format-version <version>', 'format of paths and column types')
        .choices(['v1', 'v2_beta'])
        .default('v1'),
    )
    .addOption(
      new Option('--compression <kind>', 'compression of the files')
        .choices(['none', 'gzip', 'snappy', 'zstandard'])
        .default('zstandard'),
    )
    .option(...workspace)
    .option('--watch', 'show the progress until the export ends, like `runlake export watch`')
    .option(...json)
    .addHelpText(
      'after',
      `
Prints the id of the export. Columns: docs/reference/export-columns.md.

Examples:
  runlake export create --project my-agent --destination lake --start 2026-01-31 --end 2026-02-01T12:00:00Z --watch
  runlake export create --project my-agent --destination lake --start 2026-01-01 --interval-hours 24
  runlake export create --project my-agent --destination lake --start 2026-01-01 --end 2026-02-01 --fields id,name,total_tokens
  runlake export create --project my-agent --destination lake --start 2026-01-01 --end 2026-02-01 --filter 'eq(status, "error")'`,
    )
    .action(async (options: CreateOptions) => (await import('./create-cancel.ts')).createExportFromOptions(options));
  exportCommand
    .command('list')
    .description('list exports and schedules, newest first')
    .addOption(new Option('--status <status>', 'exports with this status').choices(statuses))
    .option('--project <name or id>', 'exports of this tracing project')
    .option('--source <id>', 'exports created by this schedule')
    .option('--schedules', 'only schedules')
    .option('--limit <number>', 'maximum number, up to 1000', '20')
    .option('--workspace <name or id>', 'default: all')
    .option('--json', 'one JSON object a line, in the form of the API')
    .action(async (options: ListOptions) => (await import('./list.ts')).printExports(options));
  exportCommand
    .command('watch <id>')
    .description('show the progress of an export until it ends; the exit code is 0 only if it is COMPLETED')
    .option('--json', 'one JSON object a line, in the form of the API, at each change')
    .addHelpText('after', '\nCtrl-C stops watching; the export continues.')
    .action(async (id: string, options: object) => (await import('./watch.ts')).watchExport(id, options));
  exportCommand
    .command('cancel <id>')
    .description('cancel an export or a schedule; finished files stay')
    .option(...json)
    .action(async (id: string, options: object) => (await import('./create-cancel.ts')).cancelExportById(id, options));

  const destinationCommand = exportCommand
    .command('destinations')
    .description('buckets and folders that exports are written to');
  destinationCommand
    .command('list')
    .description('list the destinations')
    .option('--workspace <name or id>', 'default: all')
    .option('--json', 'one JSON object a line, in the form of the API')
    .action(async (options: object) => (await import('./destinations.ts')).printDestinations(options));
  destinationCommand
    .command('create')
    .description('create a destination; writes a test object first')
    .requiredOption('--name <name>', 'display name')
    .addOption(new Option('--type <type>', 'bucket or folder').choices(['s3', 'local']).default('s3'))
    .option('--bucket <name>', 'name of the bucket')
    .option('--prefix <text>', 'prefix of all object keys; with --type local, the folder below the root')
    .option('--region <name>', 'AWS region; default: us-east-1')
    .option('--endpoint <url>', 'endpoint of an S3-compatible store other than AWS')
    .option('--credentials-stdin', 'read {"access_key_id", "secret_access_key"} as JSON from standard input')
    .option(...workspace)
    .option(...json)
    .addHelpText(
      'after',
      `
RUNLAKE_LOCAL_EXPORT_ROOT, RUNLAKE_ALLOW_PRIVATE_ENDPOINTS and RUNLAKE_ALLOW_DEFAULT_CREDENTIALS are those of the
instance that runs on the data folder. If all servers are at addresses, the command reads them from its own environment;
set them as for the process that executes the exports.

Examples:
  runlake export destinations create --name lake --bucket traces --credentials-stdin < keys.json
  runlake export destinations create --name disk --type local --prefix traces`,
    )
    .action(async (options: DestinationOptions) =>
      (await import('./destinations.ts')).createDestinationWithOptions(options),
    );
  destinationCommand
    .command('delete <destination>')
    .description(
      'delete a destination (name or id) with its credentials, if no unfinished export or schedule uses it; files stay',
    )
    .option(...workspace)
    .action(async (nameOrId: string, options: object) =>
      (await import('./destinations.ts')).deleteDestinationByName(nameOrId, options),
    );
}
