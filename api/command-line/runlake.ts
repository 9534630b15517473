#!/usr/bin/env node
import { Command, Option } from 'commander';
import { isRunlakeError } from '../../infra/errors/runlake-error.ts';
import { releaseVersion } from '../server/release.ts';
import type { LetterChoice } from './dlq.ts';
import { addExportCommands } from './export/export-commands.ts';
import type { CreateKeyOptions } from './keys.ts';
import type { CreateOrganizationOptions } from './organizations.ts';
import type { Role } from './role.ts';

// What a command is made of is loaded when it runs: all of it together would take a second or two.

const program = new Command('runlake')
  .description('Self-hosted backend for LLM agents: traces in, exact usage out.')
  .version(releaseVersion)
  .addHelpText(
    'after',
    '\nEverything is set through variables: see `runlake config`, or docs/reference/configuration.md.',
  );

const roles: readonly (readonly [Role, string])[] = [
  ['all', 'run everything in one process; starts the engines that have no address (default)'],
  ['api', 'answer HTTP and publish to the event log'],
  ['ingest', 'take events from the log into ClickHouse and count usage'],
  ['exports', 'write bulk exports to buckets'],
  ['agents', 'run the graphs of a langgraph.json (RUNLAKE_AGENTS_FILE) and answer for them'],
];
for (const [role, about] of roles) {
  const command = program
    .command(role, { isDefault: role === 'all' })
    .description(about)
    .action(async ({ frontOnly, workOnly }: { frontOnly?: boolean; workOnly?: boolean }) =>
      (await import('./run-role.ts')).runRole(role, frontOnly ? 'front' : workOnly ? 'work' : 'both'),
    );
  if (role === 'agents') {
    command
      .addOption(
        new Option('--front-only', 'answer HTTP, fire crons and send webhooks; take no runs up').conflicts('workOnly'),
      )
      .addOption(new Option('--work-only', 'take runs up and execute them; answer nobody'))
      .addHelpText(
        'after',
        '\nParts that are apart meet in Postgres and Kafka: each has the same variables and the same file.',
      );
  }
}

program
  .command('migrate')
  .description('bring the stores to the schema of this release')
  .action(async () => (await import('./migrate.ts')).migrateStores());
program
  .command('config')
  .description('print every setting, redacted, with where its value comes from')
  .action(async () => (await import('./config.ts')).printConfiguration());
program
  .command('doctor')
  .description('say what is up, what is not, and what to do')
  .action(async () => (await import('./doctor.ts')).diagnose());

const keys = program.command('keys').description('API keys, also beside a running instance');
keys
  .command('list')
  .description('list the keys of the organisation')
  .action(async () => (await import('./keys.ts')).listKeys());
keys
  .command('create')
  .description('make a key and print it once')
  .option('--description <text>', 'what the key is for', 'Made on the command line')
  .option('--workspace <id>', 'workspace that the key belongs to; default: the first one')
  .option('--organization', 'a key for the whole organisation: requests then name the workspace in X-Tenant-Id')
  .option('--email <email>', 'user that the key belongs to, made where there is none; default: the first user')
  .option('--read-only', 'a key that cannot write')
  .action(async (options: CreateKeyOptions) => (await import('./keys.ts')).createKey(options));
keys
  .command('revoke <id>')
  .description('end a key; it stops working within seconds everywhere')
  .action(async (id: string) => (await import('./keys.ts')).revokeKey(id));

const organizations = program
  .command('organizations')
  .description('organisations of this installation, also beside a running instance');
organizations
  .command('list')
  .description('list organisations, and how far the data of deleted ones is deleted')
  .action(async () => (await import('./organizations.ts')).listOrganizations());
organizations
  .command('create <name>')
  .description('create an organisation with its first workspace and user, and print its admin key once')
  .option('--workspace <name>', 'name of the first workspace; default: Default')
  .option('--handle <handle>', 'tenant handle of the first workspace; default: made of the name of the organisation')
  .option('--email <email>', 'email of the first user; default: that of the first user of the installation')
  .action(async (name: string, options: CreateOrganizationOptions) =>
    (await import('./organizations.ts')).createOrganization(name, options),
  );
organizations
  .command('delete <id>')
  .description('delete an organisation with the data of all its workspaces; asks for its name')
  .option('--confirm <name>', 'the name of the organisation, in place of the question')
  .action(async (id: string, options: { confirm?: string }) =>
    (await import('./organizations.ts')).deleteOrganization(id, options),
  );

const dlq = program
  .command('dlq')
  .description('dead letters: events that could not be stored, kept with their original bytes')
  .addHelpText(
    'after',
    '\nWith Kafka set the same variables as for the roles; else the running instance is found through the data folder.',
  );
const choosing = (command: Command, limit: string) =>
  command
    .option('--topic <name>', 'those meant for this topic, such as run-events')
    .option('--step <name>', 'those refused at this step, such as inspect, insert or park')
    .option('--since <time>', 'those put aside then or later')
    .option('--until <time>', 'those put aside then or earlier')
    .option('--limit <number>', 'at most so many, the newest; up to 1000', limit);
choosing(dlq.command('list').description('list dead letters, newest first'), '20')
  .option('--json', 'one JSON object a line')
  .action(async (choice: LetterChoice) => (await import('./dlq.ts')).listLetters(choice));
dlq
  .command('show <id>')
  .description('show one dead letter: why it is there, its headers, its record')
  .option('--json', 'as JSON')
  .action(async (id: string, options: object) => (await import('./dlq.ts')).showLetter(id, options));
choosing(dlq.command('replay [ids...]').description('put events back at the end of their topics'), '100')
  .option('--all', 'every dead letter, up to the limit')
  .option('--force', 'also where the run has changed since, where it was replayed before, and where it cannot be read')
  .addHelpText(
    'after',
    '\nThe original bytes and headers are published at the end of the original topic, oldest first. So the values of a replayed\n' +
      'event win over those of patches that were stored before. An event whose run has changed since it was accepted is refused\n' +
      'without --force. The letter itself stays where it is. Ends with status 1 where any letter was not replayed.',
  )
  .action(async (ids: string[], choice: LetterChoice) => (await import('./dlq.ts')).replayLetters(ids, choice));

addExportCommands(program);

const [first] = process.argv.slice(2);
const known = ['help', ...program.commands.map((command) => command.name())];
if (first !== undefined && !first.startsWith('-') && !known.includes(first)) {
  // The default command would take it for an argument of its own.
  program.error(`error: there is no command '${first}': see \`runlake --help\``);
}
try {
  await program.parseAsync();
} catch (error) {
  process.exitCode = 1;
  if (isRunlakeError(error)) console.error(`runlake: ${error.message}\n${error.remedy}`);
  else console.error('runlake: an unexpected fault:', error);
}
