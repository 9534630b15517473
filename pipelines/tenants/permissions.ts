/**
 * Every permission that a key can have, with name, description, scope (organisation or workspace), and whether it is
 * read-only.
 */
const permissionTable = {
  'organization:read': ['Read the organisation, its members, its permissions and its usage.', 'organization', true],
  'organization:manage': [
    'Add members, and create keys for the whole organisation or for other users.',
    'organization',
    false,
  ],
  'organizations:manage': [
    "Create, list and delete organisations. Only keys of the first organisation, the operator's, can use it.",
    'organization',
    false,
  ],
  'workspaces:read': ['List workspaces and read their settings.', 'workspace', true],
  'workspaces:manage': ['Create, rename and delete workspaces.', 'organization', false],
  'usage-limits:manage': ['Set and delete the usage limits of workspaces.', 'organization', false],
  'secrets:read': ['List the keys of the secrets of a workspace, without their values.', 'workspace', true],
  'secrets:manage': ['Set and delete secrets of a workspace.', 'workspace', false],
  'tags:manage': ['Create, change and delete tags, and give them to resources.', 'workspace', false],
  'api-keys:read': ['List API keys, without their secrets.', 'workspace', true],
  'api-keys:manage': ['Create and revoke API keys.', 'workspace', false],
  'audit-logs:read': ['Read the audit log.', 'organization', true],
  'projects:read': ['List and read tracing projects.', 'workspace', true],
  'projects:create': ['Create tracing projects.', 'workspace', false],
  'projects:update': ['Rename and change tracing projects.', 'workspace', false],
  'projects:delete': ['Delete tracing projects with their runs.', 'workspace', false],
  'runs:read': ['Read and query runs, traces and attachments.', 'workspace', true],
  'runs:write': ['Send runs, and create the projects that they name.', 'workspace', false],
  'runs:share': ['Share traces by public links, and end that.', 'workspace', false],
  'runs:delete': ['Delete traces.', 'workspace', false],
  'feedback:read': ['Read feedback.', 'workspace', true],
  'feedback:write': ['Send feedback.', 'workspace', false],
  'feedback:configure': ['Define what the scores of feedback keys mean.', 'workspace', false],
  'datasets:read': ['List and read datasets and their examples.', 'workspace', true],
  'datasets:create': ['Create datasets.', 'workspace', false],
  'datasets:update': ['Change datasets, and create, change and delete examples.', 'workspace', false],
  'datasets:delete': ['Delete datasets, and examples from all versions.', 'workspace', false],
  'datasets:share': ['Share datasets by public links, and end that.', 'workspace', false],
  'prompts:read': ['List and read prompts, agents and skills of the hub.', 'workspace', true],
  'prompts:create': ['Create prompts, agents and skills.', 'workspace', false],
  'prompts:update': ['Change prompts, agents and skills: commit, tag, describe, like.', 'workspace', false],
  'prompts:delete': ['Delete prompts, agents and skills with their commits.', 'workspace', false],
  'prompts:share': ['Make prompts, agents and skills public.', 'workspace', false],
  'annotation-queues:read': [
    'List and read annotation queues; to read their runs, `runs:read` too.',
    'workspace',
    true,
  ],
  'annotation-queues:create': ['Create annotation queues.', 'workspace', false],
  'annotation-queues:update': ['Change annotation queues: add, review and remove runs.', 'workspace', false],
  'annotation-queues:delete': ['Delete annotation queues.', 'workspace', false],
  'evaluators:read': ['List and read evaluators.', 'workspace', true],
  'evaluators:manage': ['Create, change and delete evaluators.', 'workspace', false],
  'model-prices:read': ['List the prices of models.', 'workspace', true],
  'model-prices:manage': ['Create, change and delete prices of models.', 'workspace', false],
  'bulk-exports:read': ['List and read bulk exports and their destinations.', 'workspace', true],
  'bulk-exports:manage': [
    'Create and cancel bulk exports, which contain runs and feedback, and create and change their destinations.',
    'workspace',
    false,
  ],
  'oauth:read': [
    'List and read OAuth providers, tokens without their values, and the connections of agents.',
    'workspace',
    true,
  ],
  'oauth:authenticate': [
    'Get OAuth tokens of any user, start authentications, and change and delete tokens and the connections of agents.',
    'workspace',
    false,
  ],
  'oauth:manage': ['Create, change and delete OAuth providers.', 'organization', false],
  'agents:read': ['Read assistants, threads, runs, crons and stored items of the agent server.', 'workspace', true],
  'agents:run': [
    'Start and stop runs of the agent server, and create and change its assistants, threads, crons and stored items.',
    'workspace',
    false,
  ],
  'deployments:read': ['List and read deployments, their revisions and logs.', 'workspace', true],
  'deployments:write': ['Create, change, redeploy and delete deployments.', 'workspace', false],
} as const satisfies Record<string, readonly [about: string, scope: 'organization' | 'workspace', reads: boolean]>;

export type Permission = keyof typeof permissionTable;

export interface PermissionEntry {
  readonly name: Permission;
  readonly about: string;
  readonly scope: 'organization' | 'workspace';
  readonly reads: boolean;
}

export const permissions: readonly PermissionEntry[] = (Object.keys(permissionTable) as Permission[]).map((name) => {
  const [about, scope, reads] = permissionTable[name];
  return { name, about, scope, reads };
});

/** Value that is stored for a key that has every permission, including permissions that later releases add. */
export const EVERYTHING = '*';

/**
 * Returns the effective permissions of a stored key. Unknown names grant nothing, and permissions that change the
 * organisation require a key for the whole organisation.
 */
export function computeEffectivePermissions(
  stored: readonly string[],
  readOnly: boolean,
  organizationWide: boolean,
): ReadonlySet<Permission> {
  const hasEverything = stored.includes(EVERYTHING);
  const granted = permissions.filter(
    ({ name, scope, reads }) =>
      (hasEverything || stored.includes(name)) &&
      (reads || !readOnly) &&
      (reads || organizationWide || scope === 'workspace'),
  );
  return new Set(granted.map(({ name }) => name));
}
