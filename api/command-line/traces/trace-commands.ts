import { type Command, Option } from 'commander';
import type { MainApiOptions } from '../main-api-client.ts';
import type { RunListOptions } from './runs.ts';
import type { UsageOptions } from './usage.ts';

const workspace = [
  '--workspace <name or id>',
  'required for a key of several workspaces; default: LANGSMITH_WORKSPACE_ID',
] as const;

const access = `
The commands use the main API at LANGSMITH_ENDPOINT with LANGSMITH_API_KEY. Without these variables, they use the
instance that runs on the data folder (RUNLAKE_DATA_DIR).`;

/** Adds `runlake runs …` and `runlake usage`. The code of a command is loaded only when the command runs. */
export function addTraceCommands(program: Command): void {
  const runs = program.command('runs').description('traced runs of a workspace').addHelpText('after', access);
  const addFilters = (command: Command) =>
    command
      .option('--project <name or id>', 'runs of this project; default: all projects')
      .option('--filter <expression>', 'runs that match an expression of the filter language')
      .option('--errors', 'only runs that failed')
      .option('--children', 'also runs within traces; default: only the first run of each trace')
      .option(...workspace)
      .option('--json', 'one JSON object a line, in the form of the API');
  addFilters(runs.command('list').description('list runs, newest first'))
    .option('--since <time>', 'runs that started at or after this time')
    .option('--limit <number>', 'maximum number of runs', '20')
    .action(async (options: RunListOptions) => (await import('./runs.ts')).listRuns(options));
  runs
    .command('show <id>')
    .description('show a run with its inputs and outputs, and its link')
    .option(...workspace)
    .option('--json', 'as JSON, in the form of the API')
    .action(async (id: string, options: MainApiOptions) => (await import('./runs.ts')).showRun(id, options));
  addFilters(runs.command('tail').description('print runs as they start, until Ctrl-C')).action(
    async (options: RunListOptions) => (await import('./runs.ts')).tailRuns(options),
  );
  program
    .command('usage')
    .description(
      'print traces by time and workspace, project, user or key; by hour, day or month, as the range is long',
    )
    .option('--start <time>', 'start of the range; default: 7 days before its end')
    .option('--end <time>', 'end of the range; default: now')
    .addOption(
      new Option('--group-by <dimension>').choices(['workspace', 'project', 'user', 'api_key']).default('workspace'),
    )
    .option('--workspace <name or id>', 'only this workspace; default: all that the key has access to')
    .option('--json', 'one JSON object a line, in the form of the API')
    .addHelpText('after', access)
    .action(async (options: UsageOptions) => (await import('./usage.ts')).printUsage(options));
}
