import { type Database, openDatabase } from '../../infra/postgres/pool.ts';
import { DeploymentClient } from '../api/control-plane/deployment-client.ts';
import { until } from '../infra/until.ts';
import { type RunlakeProcess, startRunlake } from '../runlake-process.ts';
import { logger } from '../silent-logger.ts';

/** A Runlake process that a test kills while a transition of a revision is about to be committed. */
export class KilledDeployments {
  #runlake: RunlakeProcess;

  private constructor(runlake: RunlakeProcess) {
    this.#runlake = runlake;
  }

  static async start(): Promise<KilledDeployments> {
    const started = new KilledDeployments(await startRunlake());
    await started.withDatabase(installGate);
    return started;
  }

  get runlake(): RunlakeProcess {
    return this.#runlake;
  }

  get client(): DeploymentClient {
    return new DeploymentClient(this.#runlake.url, this.#runlake.apiKey);
  }

  async withDatabase<Result>(work: (database: Database) => Promise<Result>): Promise<Result> {
    const database = openDatabase({ url: this.#runlake.stores().databaseUrl, logger, timeoutMs: 120_000 });
    try {
      return await work(database);
    } finally {
      await database.close();
    }
  }

  /** Kills everything and starts again. */
  async restart(): Promise<void> {
    this.#runlake = await this.#runlake.restart();
  }

  /** Kills everything while a transition to `status` is about to be committed. Resolves after the next start. */
  async killAt(status: string, create: () => Promise<void>): Promise<void> {
    let isHeld = (): void => undefined;
    const held = new Promise<void>((resolve) => {
      isHeld = resolve;
    });
    const holding = this.withDatabase((database) =>
      database.transaction(async (tx) => {
        await tx.query('SELECT pg_advisory_xact_lock(1984, hashtext($1))', [status]);
        isHeld();
        await until(`a transition to ${status}`, async () => {
          const waiting = await tx.query(
            `SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = 1984 AND NOT granted`,
          );
          return waiting.length > 0;
        });
        await this.#runlake.kill();
      }),
    ).catch(() => undefined);
    await held;
    await create();
    await holding;
    await this.restart();
  }

  async remove(): Promise<void> {
    await this.#runlake.remove();
  }
}

/** Transitions wait inside their transaction for the advisory lock of their status, which a test may hold. */
async function installGate(database: Database): Promise<void> {
  await database.execute(`CREATE FUNCTION hold_transition() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN PERFORM pg_advisory_xact_lock(1984, hashtext(NEW.to_status)); RETURN NEW; END $$`);
  await database.execute(`CREATE TRIGGER hold_transition BEFORE INSERT ON revision_transitions
    FOR EACH ROW EXECUTE FUNCTION hold_transition()`);
}
