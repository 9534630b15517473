import { randomUUID } from 'node:crypto';
import { fault } from '../../../infra/errors/runlake-error.ts';
import { stayWithin } from '../../tenants/stay-within.ts';
import {
  type DestinationCredentials,
  type DestinationRecord,
  type DestinationType,
  destinationColumns,
  sealCredentials,
} from './destination-config.ts';
import type { DestinationPorts } from './destination-ports.ts';
import { type GivenConfig, settleConfig } from './settle-config.ts';
import { tryDestination } from './try-destination.ts';

export interface NewDestination {
  readonly type: DestinationType;
  readonly displayName: string;
  readonly config: GivenConfig;
  /** Absent: those that the S3 client finds itself, where the operator allows it. */
  readonly credentials?: DestinationCredentials | null | undefined;
}

const destinationsThere = `SELECT count(*) AS there FROM bulk_export_destinations AS d JOIN workspaces AS w ON w.id = d.workspace_id
  WHERE w.organization_id = $1 AND d.deleted_at IS NULL AND w.deleted_at IS NULL`;

/**
 * Makes a destination once a test object could be written there. Its credentials are stored sealed.
 *
 * @throws what {@link settleConfig} and {@link tryDestination} throw, BAD_REQUEST, LIMIT_REACHED.
 */
export async function createDestination(
  ports: DestinationPorts,
  workspaceId: string,
  { type, displayName, config: given, credentials: givenCredentials }: NewDestination,
): Promise<DestinationRecord> {
  const credentials = givenCredentials ?? undefined;
  if (type === 'local' && credentials !== undefined) {
    throw fault('BAD_REQUEST', { reason: 'A destination of type local has no credentials.' });
  }
  const config = settleConfig(type, given);
  await tryDestination(ports, workspaceId, { destination_type: type, config }, credentials);
  const id = randomUUID();
  const stored = credentials && sealCredentials(ports.sealer, id, credentials);
  return ports.database.transaction(async (tx) => {
    const [made] = await tx.query<DestinationRecord>(
      `INSERT INTO bulk_export_destinations (id, workspace_id, destination_type, display_name, config, sealed_credentials,
         credentials_keys)
       VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING ${destinationColumns}`,
      [id, workspaceId, type, displayName, config, stored?.sealed ?? null, stored?.keys ?? []],
    );
    const most = ports.config.exportMaxDestinations;
    await stayWithin(tx, { workspaceId }, { most, count: destinationsThere }, () =>
      fault('LIMIT_REACHED', {
        limit: most,
        what: 'destinations of bulk exports',
        setting: 'RUNLAKE_EXPORT_MAX_DESTINATIONS',
        instead: 'Delete those that are not needed',
      }),
    );
    return made as DestinationRecord;
  });
}
