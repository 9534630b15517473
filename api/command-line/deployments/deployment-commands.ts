import type { Command } from 'commander';
import type { MainApiOptions } from '../main-api-client.ts';
import type { DeployOptions } from './deploy.ts';
import type { LogOptions } from './list-logs-delete.ts';

const workspace = [
  '--workspace <name or id>',
  'required for a key of several workspaces; default: LANGSMITH_WORKSPACE_ID',
] as const;
const json = ['--json', 'as JSON, in the form of the API'] as const;

const access = `
The commands use the main API at LANGSMITH_ENDPOINT with LANGSMITH_API_KEY, which needs deployments:read or
deployments:write. Without these variables, they use the instance that runs on the data folder (RUNLAKE_DATA_DIR).`;

/** Adds `runlake deploy` and `runlake deployments …`. The code of a command is loaded only when the command runs. */
export function addDeploymentCommands(program: Command): void {
  program
    .command('deploy [folder]')
    .description('deploy a folder with a langgraph.json; create the deployment, or update it')
    .option('--name <name>', 'name of the deployment; default: that of the folder')
    .option('--install-command <command>', 'installs the packages; default: npm, pnpm or yarn, by the lock file')
    .option('--build-command <command>', 'runs after the installation, in the folder')
    .option('--no-wait', 'do not wait until the deployment serves')
    .option(...workspace)
    .option(...json)
    .addHelpText(
      'after',
      `
[folder] may also be the path of the file. Default: the working directory. Files that .dockerignore or .gitignore exclude
are not uploaded, nor are links, node_modules and .git. The variables of the file that \`env\` of the langgraph.json names
become secrets of the deployment; the file itself is not uploaded.

Prints the address of the deployment when it serves. The exit code is 1 if it does not. Ctrl-C stops waiting; the
deployment continues.
${access}

Examples:
  runlake deploy
  runlake deploy docs/guide/agents --name trips
  LANGSMITH_ENDPOINT=https://runlake.example LANGSMITH_API_KEY=... runlake deploy --json`,
    )
    .action(async (folder: string | undefined, options: DeployOptions) =>
      (await import('./deploy.ts')).deployFolder(folder ?? '.', options),
    );
  const deployments = program
    .command('deployments')
    .description('deployments of a workspace: agent servers that the control plane builds and runs')
    .addHelpText('after', access);
  deployments
    .command('list')
    .description('list the deployments, newest first')
    .option(...workspace)
    .option('--json', 'one JSON object a line, in the form of the API')
    .action(async (options: MainApiOptions) => (await import('./list-logs-delete.ts')).listDeployments(options));
  deployments
    .command('logs <deployment>')
    .description('print the log of the latest revision of a deployment, by name or id: its build and its replicas')
    .option('--revision <id>', 'another revision')
    .option('--follow', 'also print what follows, until Ctrl-C')
    .option(...workspace)
    .option('--json', 'one JSON object a line')
    .action(async (nameOrId: string, options: LogOptions) =>
      (await import('./list-logs-delete.ts')).printLogs(nameOrId, options),
    );
  deployments
    .command('delete <deployment>')
    .description('delete a deployment, by name or id, with its threads, assistants and crons; prompts for its name')
    .option('--confirm <name>', 'the name of the deployment, instead of the prompt')
    .option('--delete-tracing-project', 'also delete its tracing project with all traces')
    .option(...workspace)
    .option(...json)
    .action(async (nameOrId: string, options: object) =>
      (await import('./list-logs-delete.ts')).deleteDeployment(nameOrId, options),
    );
}
