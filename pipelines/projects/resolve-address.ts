import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { parseUuid } from '../ingest/run-event/uuid.ts';
import { addressForm, nameAgentProject } from './agent-address.ts';
import { findProjectIds } from './project.ts';
import { findProjectsByName } from './resolve-project.ts';

/** Name of the project to which the stock SDKs trace evaluators. */
const evaluatorProject = 'evaluators';

/** An address in the form of the query of `GET /sessions/resolutions`. */
export interface Address {
  /** AGENT, EXPERIMENT or EVALUATOR, case-insensitive. */
  readonly kind: string;
  readonly id?: string | undefined;
  readonly environment?: string | undefined;
}

/**
 * Returns the id of the project that an address names. The project of an agent keeps its address when it is renamed.
 *
 * @throws BAD_REQUEST if the address is invalid; NOT_FOUND if it names no project of the workspace.
 */
export async function resolveAddress(
  database: Database,
  workspaceId: string,
  { kind, id = '', environment = '' }: Address,
): Promise<string> {
  const projectId = await findProject(database, workspaceId, { kind: kind.toUpperCase(), id, environment });
  if (projectId === undefined) throw runlakeError('NOT_FOUND', { what: 'Session' });
  return projectId;
}

async function findProject(
  database: Database,
  workspaceId: string,
  { kind, id, environment }: { readonly [P in keyof Address]-?: string },
): Promise<string | undefined> {
  if (kind === 'AGENT') {
    const name = nameAgentProject(id, environment);
    if (name === undefined) throw createAddressError(`of an agent is ${addressForm}`);
    return (await findProjectsByName(database, { workspaceId, names: [name], withFormerNames: true })).get(name);
  }
  if (kind === 'EXPERIMENT') {
    const experimentId = parseUuid(id);
    if (experimentId === undefined) throw createAddressError('of an experiment has a UUID as id');
    return (await findProjectIds(database, workspaceId, { ids: [experimentId], referenceFree: false }))[0];
  }
  if (kind === 'EVALUATOR') return (await findProjectIds(database, workspaceId, { name: evaluatorProject }))[0];
  throw createAddressError('has the kind AGENT, EXPERIMENT or EVALUATOR');
}

function createAddressError(form: string): Error {
  return runlakeError('BAD_REQUEST', { reason: `An address ${form}.` });
}
