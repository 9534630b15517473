import { randomUUID } from 'node:crypto';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { enforceLimit } from '../../tenants/enforce-limit.ts';
import {
  type DestinationCredentials,
  type DestinationRecord,
  type DestinationType,
  destinationColumns,
  sealCredentials,
} from './destination-config.ts';
import type { DestinationDeps } from './destination-deps.ts';
import { type GivenConfig, normaliseConfig } from './normalise-config.ts';
import { tryDestination } from './try-destination.ts';

export interface NewDestination {
  readonly type: DestinationType;
  readonly displayName: string;
  readonly config: GivenConfig;
  /** If absent, the S3 client uses its default credential chain, if the operator allows it. */
  readonly credentials?: DestinationCredentials | null | undefined;
}

const countDestinations = `SELECT count(*) AS there FROM bulk_export_destinations AS d JOIN workspaces AS w ON w.id = d.workspace_id
  WHERE w.organization_id = $1 AND d.deleted_at IS NULL AND w.deleted_at IS NULL`;

/**
 * Creates a destination after writing a test object to it. Credentials are stored sealed.
 *
 * @throws errors of {@link normaliseConfig} and {@link tryDestination}, BAD_REQUEST, LIMIT_REACHED.
 */
export async function createDestination(
  deps: DestinationDeps,
  workspaceId: string,
  { type, displayName, config: given, credentials: givenCredentials }: NewDestination,
): Promise<DestinationRecord> {
  const credentials = givenCredentials ?? undefined;
  if (type === 'local' && credentials !== undefined) {
    throw runlakeError('BAD_REQUEST', { reason: 'A destination of type local has no credentials.' });
  }
  const config = normaliseConfig(type, given);
  await tryDestination(deps, workspaceId, { destination_type: type, config }, credentials);
  const id = randomUUID();
  const stored = credentials && sealCredentials(deps.sealer, id, credentials);
  return deps.database.transaction(async (tx) => {
    const [made] = await tx.query<DestinationRecord>(
      `INSERT INTO bulk_export_destinations (id, workspace_id, destination_type, display_name, config, sealed_credentials,
         credentials_keys)
       VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING ${destinationColumns}`,
      [id, workspaceId, type, displayName, config, stored?.sealed ?? null, stored?.keys ?? []],
    );
    const limit = deps.config.exportMaxDestinations;
    await enforceLimit(tx, { workspaceId }, { most: limit, count: countDestinations }, () =>
      runlakeError('LIMIT_REACHED', {
        limit,
        what: 'destinations of bulk exports',
        instead: 'Delete those that are not needed',
      }),
    );
    return made as DestinationRecord;
  });
}
