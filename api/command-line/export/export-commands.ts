import { type Command, Option } from 'commander';
import type { CreateOptions } from './create.ts';
import type { DestinationOptions } from './destinations.ts';
import type { ListOptions } from './list.ts';

const json = ['--json', 'as JSON, in the form of the API'] as const;
const workspace = ['--workspace <name or id>', 'where there are several; default: the only one'] as const;
const statuses = ['CREATED', 'RUNNING', 'COMPLETED', 'FAILED', 'CANCELLED', 'TIMEDOUT'];

/** `runlake export …`. What the commands are made of is loaded when they run. */
export function addExportCommands(program: Command): void {
  const exports = program
    .command('export')
    .description('bulk exports: runs as Parquet files in a bucket, also beside a running instance')
    .addHelpText(
      'after',
      `
These commands find the running instance through the data folder, or through the same variables as the roles. What they ask
for is done by \`runlake all\` or \`runlake exports\`, so one of them has to run.

Examples:
  runlake export destinations create --name lake --bucket traces --region eu-central-1 --credentials-stdin < keys.json
  runlake export create --project my-agent --destination lake --start 2026-01-01 --end 2026-02-01 --watch
  runlake export list --status RUNNING
  runlake export cancel 0b6f1c4e-2f57-4a51-9a2e-6d1c8a3f7e90`,
    );
  exports
    .command('create')
    .description('export the runs of a tracing project, once or on a schedule')
    .requiredOption('--project <name or id>', 'the tracing project')
    .requiredOption('--destination <name or id>', 'where to: see `runlake export destinations list`')
    .requiredOption('--start <time>', 'runs that began then or later; UTC where no zone is said')
    .option('--end <time>', 'runs that began before; once, up to there')
    .option('--interval-hours <hours>', 'instead of --end: a schedule, an export for each so many hours (1 to 168)')
    .option('--fields <names>', 'columns of the files, separated by commas; default: all')
    .addOption(
      new Option('--format-version <version>', 'form of paths and types').choices(['v1', 'v2_beta']).default('v1'),
    )
    .addOption(
      new Option('--compression <kind>', 'of the files')
        .choices(['none', 'gzip', 'snappy', 'zstandard'])
        .default('zstandard'),
    )
    .option(...workspace)
    .option('--watch', 'show how it goes until its end, as `runlake export watch` does')
    .option(...json)
    .addHelpText(
      'after',
      `
Prints the id of the export. Columns: docs/reference/export-columns.md.

Examples:
  runlake export create --project my-agent --destination lake --start 2026-01-31 --end 2026-02-01T12:00:00Z --watch
  runlake export create --project my-agent --destination lake --start 2026-01-01 --interval-hours 24
  runlake export create --project my-agent --destination lake --start 2026-01-01 --end 2026-02-01 --fields id,name,total_tokens`,
    )
    .action(async (options: CreateOptions) => (await import('./create.ts')).createOne(options));
  exports
    .command('list')
    .description('list exports and schedules, newest first')
    .addOption(new Option('--status <status>', 'those that are so').choices(statuses))
    .option('--project <name or id>', 'those of a tracing project')
    .option('--source <id>', 'those that a schedule has spawned')
    .option('--schedules', 'schedules alone')
    .option('--limit <number>', 'at most so many, up to 1000', '20')
    .option('--workspace <name or id>', 'default: all')
    .option('--json', 'one JSON object a line, in the form of the API')
    .action(async (options: ListOptions) => (await import('./list.ts')).listAll(options));
  exports
    .command('watch <id>')
    .description('show how an export goes until its end; the exit code is 0 only if it is COMPLETED')
    .option('--json', 'one JSON object a line, in the form of the API, whenever something changes')
    .addHelpText('after', '\nCtrl-C ends the watching, not the export.')
    .action(async (id: string, options: object) => (await import('./watch.ts')).watchOne(id, options));
  exports
    .command('cancel <id>')
    .description('cancel an export or a schedule; files that are finished stay')
    .option(...json)
    .action(async (id: string, options: object) => (await import('./cancel.ts')).cancelOne(id, options));

  const destinations = exports.command('destinations').description('buckets and folders that exports go to');
  destinations
    .command('list')
    .description('list the destinations')
    .option('--workspace <name or id>', 'default: all')
    .option('--json', 'one JSON object a line, in the form of the API')
    .action(async (options: object) => (await import('./destinations.ts')).listPlaces(options));
  destinations
    .command('create')
    .description('make a destination, once a test object could be written there')
    .requiredOption('--name <name>', 'how it is called')
    .addOption(new Option('--type <type>', 'what it is').choices(['s3', 'local']).default('s3'))
    .option('--bucket <name>', 'name of the bucket')
    .option('--prefix <text>', 'goes before the names of all objects; of type local: the folder below the root')
    .option('--region <name>', 'for AWS; default: us-east-1')
    .option('--endpoint <url>', 'of a store other than AWS that speaks the S3 API')
    .option('--credentials-stdin', 'read {"access_key_id", "secret_access_key"} as JSON from standard input')
    .option(...workspace)
    .option(...json)
    .addHelpText(
      'after',
      `
Settings count as this command sees them: RUNLAKE_LOCAL_EXPORT_ROOT, RUNLAKE_ALLOW_PRIVATE_ENDPOINTS and
RUNLAKE_ALLOW_DEFAULT_CREDENTIALS are to be the same as where the exports are done.

Examples:
  runlake export destinations create --name lake --bucket traces --credentials-stdin < keys.json
  RUNLAKE_LOCAL_EXPORT_ROOT=/srv/exports runlake export destinations create --name disk --type local --prefix traces`,
    )
    .action(async (options: DestinationOptions) => (await import('./destinations.ts')).createPlace(options));
}
