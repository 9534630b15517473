import { randomUUID } from 'node:crypto';
import { loadConfig } from '../../../infra/config/load.ts';
import type { Config } from '../../../infra/config/settings.ts';
import type { Database } from '../../../infra/postgres/pool.ts';
import { createDeployment, type NewDeployment } from '../../../pipelines/deployments/write-deployment.ts';
import { createProjectResolver } from '../../../pipelines/projects/resolve-project.ts';
import { createSecretSealer } from '../../../pipelines/tenants/secrets.ts';
import { addOrganization, type OrganizationUnderTest } from '../../api/start-api.ts';
import { type FreshStores, freshStores } from '../../engines/stores.ts';
import { logger } from '../../silent-logger.ts';

/** A database with an organisation, and what the functions of deployments need. The driver runs images. */
export async function openDeployments(overrides: Partial<Config> = {}) {
  const stores: FreshStores = await freshStores();
  const organization: OrganizationUnderTest = await addOrganization(stores.database, `org-${randomUUID().slice(0, 8)}`);
  const config: Config = { ...loadConfig({}).config, deploymentsDriver: 'docker', ...overrides };
  const { database, clickhouse } = stores;
  const [workspaceId] = organization.workspaceIds;
  const deps = {
    database,
    clickhouse,
    config,
    logger,
    projects: createProjectResolver(database, config.maxProjects),
    secretSealer: createSecretSealer(config, 'key of the tests'),
  };
  const caller = { organizationId: organization.id, workspaceId } as Parameters<typeof createDeployment>[1];
  return {
    ...deps,
    stores,
    workspaceId,
    organization,
    caller,
    /** Creates a deployment of an image. */
    create: (name: string, more: Partial<NewDeployment> = {}) =>
      createDeployment(deps, caller, {
        name,
        source: 'external_docker',
        sourceConfig: { deployment_type: 'dev' },
        sourceRevisionConfig: { image_uri: 'registry.example/image:1' },
        secrets: [],
        secretReferences: [],
        ...more,
      }),
    /** Creates a deployment that hosts with the driver `process` build. */
    createBuilt: (name: string, deploymentType: 'dev' | 'dev_zero' | 'prod' = 'dev', as = caller) =>
      createDeployment({ ...deps, config: { ...config, deploymentsDriver: 'process' } }, as, {
        ...{ name, source: 'github', secrets: [], secretReferences: [] },
        sourceConfig: { repo_url: 'https://example.com/repo.git', deployment_type: deploymentType },
        sourceRevisionConfig: { repo_ref: 'main' },
      }),
    close: () => stores.close(),
  };
}

export type DeploymentsUnderTest = Awaited<ReturnType<typeof openDeployments>>;

/** Reads the status of a revision. */
export async function readStatus(database: Database, revisionId: string | null): Promise<string | undefined> {
  const [row] = await database.query<{ status: string }>('SELECT status FROM deployment_revisions WHERE id = $1', [
    revisionId,
  ]);
  return row?.status;
}
