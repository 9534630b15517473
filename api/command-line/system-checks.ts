import type { Config } from '../../infra/config/settings.ts';
import { isRunlakeError } from '../../infra/errors/runlake-error.ts';
import { checkMigrations } from '../../infra/migrations/migrate.ts';
import { inspectUnclaimedRevisions } from '../../pipelines/deployments/claim-revision.ts';
import { inspectDeletions } from '../../pipelines/retention/change-traces.ts';
import { createServerChecks } from './doctor-checks.ts';
import { explainPart } from './explain-part.ts';
import type { StoreAddresses, Stores } from './open-stores.ts';

/** The result of a check of `runlake doctor`. */
export interface SystemCheck {
  readonly name: string;
  readonly is_ok: boolean;
  /** What was found. Contains neither passwords nor text of the server that failed. */
  readonly message: string;
  readonly remedy: string | null;
}

/** Runs the checks of `runlake doctor` of the servers that this installation uses, at the same time. */
export function checkSystem(
  config: Config,
  addresses: Partial<StoreAddresses>,
  stores: Stores,
): Promise<SystemCheck[]> {
  const servers = createServerChecks(config, addresses, stores).map(async (server): Promise<SystemCheck> => {
    try {
      return { name: server.name, is_ok: true, message: await server.check(), remedy: null };
    } catch (error) {
      const why = explainPart(error, server);
      return why ? toFailure(server.name, why.words, why.remedy) : explainFailure(server.name, error);
    }
  });
  const deletions = inspect('Deletions', () => inspectDeletions(stores.database));
  const deployments = inspect('Deployments', () => inspectUnclaimedRevisions(stores.database));
  return Promise.all([...servers, checkSchema(stores), deletions, deployments]);
}

async function inspect(name: string, check: () => Promise<string>): Promise<SystemCheck> {
  try {
    return { name, is_ok: true, message: await check(), remedy: null };
  } catch (error) {
    return explainFailure(name, error);
  }
}

async function checkSchema(stores: Stores): Promise<SystemCheck> {
  try {
    const { pending } = await checkMigrations(stores);
    if (pending.length > 0) return toFailure('Schema', `lacks ${pending.join(', ')}`, 'run `runlake migrate`');
    return { name: 'Schema', is_ok: true, message: 'matches this release', remedy: null };
  } catch (error) {
    return explainFailure('Schema', error);
  }
}

function toFailure(name: string, message: string, remedy: string | null): SystemCheck {
  return { name, is_ok: false, message, remedy };
}

function explainFailure(name: string, error: unknown): SystemCheck {
  return isRunlakeError(error)
    ? toFailure(name, error.message, error.remedy)
    : toFailure(name, 'the check failed', null);
}
