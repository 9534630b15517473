/** Every permission that a key can carry: name, what it allows, whether it reaches beyond one workspace, whether it only reads. */
const table = {
  'organization:read': ['Read the organisation, its members, its permissions and its usage.', 'organization', true],
  'organization:manage': [
    'Add members, and make keys that reach the whole organisation or belong to other users.',
    'organization',
    false,
  ],
  'organizations:manage': [
    'Create, list and delete organisations, with keys of the first organisation alone, which is that of the operator.',
    'organization',
    false,
  ],
  'workspaces:read': ['List workspaces and read their settings.', 'workspace', true],
  'workspaces:manage': ['Create, rename and delete workspaces.', 'organization', false],
  'api-keys:read': ['List API keys, without their secrets.', 'workspace', true],
  'api-keys:manage': ['Make and revoke API keys.', 'workspace', false],
  'projects:read': ['List and read tracing projects.', 'workspace', true],
  'projects:create': ['Make tracing projects.', 'workspace', false],
  'projects:update': ['Rename and change tracing projects.', 'workspace', false],
  'projects:delete': ['Delete tracing projects with their runs.', 'workspace', false],
  'runs:read': ['Read and query runs, traces and attachments.', 'workspace', true],
  'runs:write': ['Send runs, which also makes the projects that they name.', 'workspace', false],
  'feedback:read': ['Read feedback.', 'workspace', true],
  'feedback:write': ['Send feedback.', 'workspace', false],
  'bulk-exports:read': ['List and read bulk exports and their destinations.', 'workspace', true],
  'bulk-exports:manage': ['Make and cancel bulk exports, and make and change their destinations.', 'workspace', false],
  'agents:read': ['Read assistants, threads, runs, crons and stored items of the agent server.', 'workspace', true],
  'agents:run': [
    'Start and stop runs of the agent server, and make and change its assistants, threads, crons and stored items.',
    'workspace',
    false,
  ],
} as const satisfies Record<string, readonly [about: string, scope: 'organization' | 'workspace', reads: boolean]>;

export type Permission = keyof typeof table;

export interface PermissionEntry {
  readonly name: Permission;
  readonly about: string;
  readonly scope: 'organization' | 'workspace';
  readonly reads: boolean;
}

export const permissions: readonly PermissionEntry[] = (Object.keys(table) as Permission[]).map((name) => {
  const [about, scope, reads] = table[name];
  return { name, about, scope, reads };
});

/** What a stored key says when it has every permission, also those that later releases add. */
export const EVERYTHING = '*';

export function isPermission(name: string): name is Permission {
  return Object.hasOwn(table, name);
}

/**
 * The permissions that a key has, from what is stored with it. Names that this release does not know grant nothing, and what
 * changes the organisation is left to keys that reach all of it.
 */
export function effectivePermissions(
  stored: readonly string[],
  readOnly: boolean,
  organizationWide: boolean,
): ReadonlySet<Permission> {
  const all = stored.includes(EVERYTHING);
  const granted = permissions.filter(
    ({ name, scope, reads }) =>
      (all || stored.includes(name)) && (reads || !readOnly) && (reads || organizationWide || scope === 'workspace'),
  );
  return new Set(granted.map(({ name }) => name));
}
