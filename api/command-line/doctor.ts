import { loadConfig } from '../../infra/config/load.ts';
import { type RunningInstance, readRunFile } from '../../infra/embedded/run-file.ts';
import { isRunlakeError } from '../../infra/errors/runlake-error.ts';
import { checkMigrations } from '../../infra/migrations/migrate.ts';
import { createLogger } from '../../infra/telemetry/logger.ts';
import { findStores, openStores } from './open-stores.ts';

const answerWithinMs = 5_000;

/**
 * `runlake doctor`: one line a part, in words: up, or what is wrong and what to do. Ends with status 1 where anything is wrong.
 */
export async function diagnose(): Promise<void> {
  const { config, unknownVariables } = loadConfig();
  say(true, 'Configuration', 'every setting is valid');
  for (const variable of unknownVariables)
    say(false, variable, 'is no setting of Runlake', 'Check the spelling with `runlake config`.');

  const running = await readRunFile(config.dataDir).catch((error: unknown) => error);
  if (isRunning(running)) say(true, 'Process', `runlake runs as process ${running.pid} since ${running.startedAt}`);
  else tell('Process', running);
  if (isRunning(running)) await report('HTTP', () => askReady(running.url));

  const logger = createLogger('silent', 'doctor');
  const addresses = await findStores(config).catch(() => undefined);
  if (addresses === undefined) {
    say(false, 'Stores', 'are embedded and run only while runlake does', 'Start it with `runlake all`.');
    return;
  }
  const stores = openStores(addresses, config, logger);
  try {
    const up = [
      await report('ClickHouse', async () => {
        await stores.warehouse.ping(answerWithinMs);
        return `release ${await stores.warehouse.version()}`;
      }),
      await report('Postgres', async () => {
        await stores.database.ping();
        return `release ${await stores.database.version()}`;
      }),
    ];
    if (up.includes(false)) return;
    await report('Schema', async () => {
      const { pending } = await checkMigrations(stores);
      return pending.length === 0 ? 'is that of this release' : `lacks ${pending.join(', ')}: run \`runlake migrate\``;
    });
  } finally {
    await stores.close();
  }
}

async function report(part: string, check: () => Promise<string>): Promise<boolean> {
  try {
    say(true, part, await check());
    return true;
  } catch (error) {
    tell(part, error);
    return false;
  }
}

async function askReady(url: string): Promise<string> {
  const answer = await fetch(`${url}/ready`, { signal: AbortSignal.timeout(answerWithinMs) });
  const body = (await answer.json()) as { parts?: Record<string, { up?: boolean }> };
  const down = Object.entries(body.parts ?? {}).filter(([, part]) => part.up !== true);
  if (answer.ok) return `answers at ${url} and is ready`;
  return `answers at ${url} but is not ready: ${down.map(([name]) => name).join(', ') || 'no part says why'}`;
}

function tell(part: string, error: unknown): void {
  if (isRunlakeError(error)) say(false, part, error.message, error.remedy);
  else say(false, part, error instanceof Error ? error.message : String(error));
}

function say(up: boolean, part: string, words: string, remedy = ''): void {
  console.log(`${up ? 'ok   ' : 'FAULT'}  ${part}: ${words}${remedy === '' ? '' : `\n       → ${remedy}`}`);
  if (!up) process.exitCode = 1;
}

function isRunning(value: unknown): value is RunningInstance {
  return typeof value === 'object' && value !== null && 'pid' in value;
}
