#!/usr/bin/env node
import { Command, Option } from 'commander';
import type { ErrorCode } from '../../infra/errors/catalogue.ts';
import { isRunlakeError } from '../../infra/errors/runlake-error.ts';
import { releaseVersion } from '../server/release.ts';
import type { AuditOptions } from './audit.ts';
import { addDeploymentCommands } from './deployments/deployment-commands.ts';
import type { DeadLetterOptions } from './dlq.ts';
import { addExportCommands } from './export/export-commands.ts';
import { reportToHost } from './follow-host.ts';
import type { CreateKeyOptions, OrganizationOptions } from './keys-and-members.ts';
import type { CreateOrganizationOptions } from './organizations.ts';
import type { Role } from './role.ts';
import { addTraceCommands } from './traces/trace-commands.ts';

/**
 * Errors whose remedy refers to a request or an API key, which commands do not have. Their messages contain the remedy
 * for a command.
 */
const codesWithoutRemedy: ReadonlySet<ErrorCode> = new Set([
  'BAD_REQUEST',
  'CONFLICT',
  'NOT_FOUND',
  'PARAMETER_NOT_SUPPORTED',
]);

// The code of a command is loaded when the command runs, because loading all code takes a second or two.

const program = new Command('runlake')
  .description('Self-hosted backend for LLM agents: traces in, exact usage out.')
  .version(releaseVersion)
  .addHelpText(
    'after',
    '\nAll configuration is by environment variables: see `runlake config`, or docs/reference/configuration.md.',
  );

const roles: readonly (readonly [Role, string])[] = [
  ['all', 'run everything in one process; starts the engines without a configured address (default)'],
  ['api', 'serve the HTTP API and publish to the event log'],
  ['ingest', 'store events from the log in ClickHouse and count usage'],
  ['exports', 'write bulk exports to buckets'],
  ['agents', 'serve and run the graphs of a langgraph.json (RUNLAKE_AGENTS_FILE)'],
  ['tools', 'serve tools for language models (Model Context Protocol)'],
];
for (const [role, about] of roles) {
  const command = program
    .command(role, { isDefault: role === 'all' })
    .description(about)
    .action(async ({ frontOnly, workOnly, stdio }: { frontOnly?: boolean; workOnly?: boolean; stdio?: boolean }) => {
      if (stdio) return (await import('./serve-stdio.ts')).serveToolsOverStdio();
      await (await import('./run-role.ts')).runRole(role, frontOnly ? 'front' : workOnly ? 'work' : 'both');
    });
  if (role === 'tools') {
    command
      .option('--stdio', 'serve one client over standard input and output; starts no part of Runlake')
      .addHelpText(
        'after',
        '\nWith --stdio, the tools use the main API at LANGSMITH_ENDPOINT (default: that of this machine) with LANGSMITH_API_KEY and,\n' +
          'for a key of several workspaces, LANGSMITH_WORKSPACE_ID. The names RUNLAKE_ENDPOINT, … work too.',
      );
  }
  if (role === 'agents') {
    command
      .addOption(
        new Option('--front-only', 'serve HTTP, fire crons and send webhooks; execute no runs').conflicts('workOnly'),
      )
      .addOption(new Option('--work-only', 'claim and execute runs; serve no HTTP'))
      .addHelpText(
        'after',
        '\nSeparate parts communicate through Postgres and Kafka. Configure all with the same variables and the same file.',
      );
  }
}

program
  .command('migrate')
  .description('migrate the stores to the schema of this release')
  .action(async () => (await import('./migrate.ts')).migrateStores());
program
  .command('config')
  .description('print every setting, redacted, with the source of its value')
  .action(async () => {
    const [{ loadConfig }, { printConfig }] = await Promise.all([
      import('../../infra/config/load.ts'),
      import('../../infra/config/print.ts'),
    ]);
    console.log(printConfig(loadConfig()));
  });
program
  .command('doctor')
  .description('check all parts and print remedies for problems')
  .action(async () => (await import('./doctor.ts')).diagnose());

program
  .command('disk')
  .description('print the disk use of traces by workspace and tier; works while an instance runs')
  .action(async () => (await import('./disk.ts')).printDiskUse());

const addOrganizationOption = (command: Command) =>
  command.option('--in <name or id>', 'the organisation, see `runlake organizations list`; default: the first one');
const keys = program.command('keys').description('API keys; works while an instance runs');
addOrganizationOption(keys.command('list'))
  .description('list the keys of the organisation')
  .action(async (options: OrganizationOptions) => (await import('./keys-and-members.ts')).listKeys(options));
addOrganizationOption(keys.command('create'))
  .description('create a key and print it once')
  .option('--description <text>', 'what the key is for', 'Created on the command line')
  .option('--workspace <name or id>', 'workspace that the key belongs to; default: the first one')
  .option('--organization', 'a key for the whole organisation: requests then name the workspace in X-Tenant-Id')
  .option('--email <email>', 'user that the key belongs to, created if missing; default: the first user')
  .option('--read-only', 'a key that cannot write')
  .action(async (options: CreateKeyOptions) => (await import('./keys-and-members.ts')).createKey(options));
addOrganizationOption(keys.command('revoke <id>'))
  .description('revoke a key; all processes refuse it within seconds')
  .action(async (id: string, options: OrganizationOptions) =>
    (await import('./keys-and-members.ts')).revokeKey(id, options),
  );

const members = program.command('members').description('users of the organisation; works while an instance runs');
addOrganizationOption(members.command('list'))
  .description('list the users of the organisation')
  .action(async (options: OrganizationOptions) => (await import('./keys-and-members.ts')).listMembers(options));
addOrganizationOption(members.command('remove <email>'))
  .description('remove a user and revoke the keys of the user; all processes refuse them within seconds')
  .action(async (email: string, options: OrganizationOptions) =>
    (await import('./keys-and-members.ts')).removeMember(email, options),
  );

addOrganizationOption(program.command('audit'))
  .description('print who changed what in the organisation, newest first; works while an instance runs')
  .option('--since <time>', 'entries at or after this time')
  .option('--until <time>', 'entries before this time')
  .option('--actor <text>', 'entries of this kind, id or name of an actor')
  .option(
    '--action <action>',
    'entries of this action, such as api_key.revoke, or of a kind of target, such as api_key',
  )
  .option('--limit <number>', 'maximum number of entries', '100')
  .option('--json', 'one JSON object a line')
  .action(async (options: AuditOptions) => (await import('./audit.ts')).printAuditLog(options));

const organizationCommand = program
  .command('organizations')
  .description('organisations of this installation; works while an instance runs');
organizationCommand
  .command('list')
  .description('list organisations and the progress of data deletion')
  .action(async () => (await import('./organizations.ts')).listOrganizations());
organizationCommand
  .command('create <name>')
  .description('create an organisation with its first workspace and user, and print its admin key once')
  .option('--workspace <name>', 'name of the first workspace; default: Default')
  .option(
    '--handle <handle>',
    'tenant handle of the first workspace; default: derived from the name of the organisation',
  )
  .option('--email <email>', 'email of the first user; default: that of the first user of the installation')
  .action(async (name: string, options: CreateOrganizationOptions) =>
    (await import('./organizations.ts')).createOrganization(name, options),
  );
organizationCommand
  .command('delete <id>')
  .description('delete an organisation with the data of all its workspaces; prompts for its name')
  .option('--confirm <name>', 'the name of the organisation, instead of the prompt')
  .action(async (id: string, options: { confirm?: string }) =>
    (await import('./organizations.ts')).deleteOrganization(id, options),
  );

const dlq = program
  .command('dlq')
  .description('dead-letter queue: events that cannot be stored, with their original bytes')
  .addHelpText(
    'after',
    '\nWith Kafka, set the same variables as for the roles. Otherwise the command finds the instance through the data folder.',
  );
const addFilterOptions = (command: Command, limit: string) =>
  command
    .option('--topic <name>', 'records of this topic, such as run-events')
    .option('--step <name>', 'records refused at this step: framing, schema, walk, key, insert or defer')
    .option('--since <time>', 'records dead-lettered at or after this time')
    .option('--until <time>', 'records dead-lettered at or before this time')
    .option('--limit <number>', 'maximum number of records, newest first, up to 1000', limit);
addFilterOptions(dlq.command('list').description('list dead-letter records, newest first'), '20')
  .option('--json', 'one JSON object a line')
  .action(async (choice: DeadLetterOptions) => (await import('./dlq.ts')).listDeadLetters(choice));
dlq
  .command('show <id>')
  .description('show the reason, headers and content of a dead-letter record')
  .option('--json', 'as JSON')
  .action(async (id: string, options: object) => (await import('./dlq.ts')).showDeadLetter(id, options));
addFilterOptions(
  dlq.command('replay [ids...]').description('publish dead-lettered events to their topics again'),
  '100',
)
  .option('--all', 'all records, up to the limit')
  .option('--force', 'also replay records that are unreadable or were replayed before')
  .addHelpText(
    'after',
    '\nThe original bytes and headers are published at the end of the original topic, oldest first. The events keep their\n' +
      'version, so they do not overwrite values of later events. The dead-letter record is kept. The exit code is 1 if any\n' +
      'record was not replayed.',
  )
  .action(async (ids: string[], choice: DeadLetterOptions) =>
    (await import('./dlq.ts')).replayDeadLetters(ids, choice),
  );

addExportCommands(program);
addDeploymentCommands(program);
addTraceCommands(program);

const [first] = process.argv.slice(2);
const knownCommands = ['help', ...program.commands.map((command) => command.name())];
if (first !== undefined && !first.startsWith('-') && !knownCommands.includes(first)) {
  // Without this check, the default command would treat an unknown command as its own argument.
  program.error(`error: unknown command '${first}'. See \`runlake --help\``);
}
const isRole = first === undefined || first.startsWith('-') || roles.some(([role]) => role === first);
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  // The reader of the output may end early, as in `runlake audit | head`. A role continues without it.
  if (isRole) return;
  if (error.code !== 'EPIPE') console.error(`runlake: the output cannot be written: ${error.message}`);
  process.exit(error.code === 'EPIPE' ? undefined : 1);
});
try {
  await program.parseAsync();
} catch (error) {
  process.exitCode = 1;
  if (isRunlakeError(error)) {
    const { code, message, remedy } = error;
    reportToHost(error);
    console.error(`runlake: ${codesWithoutRemedy.has(code) ? message : `${message}\n${remedy}`}`);
  } else console.error('runlake: unexpected error:', error);
}
