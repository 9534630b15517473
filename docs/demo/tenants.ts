import { ask } from './ask.ts';
import { type Sender, secondWorkspace, senders } from './plan.ts';
import type { DemoServer } from './server.ts';

export interface DemoKey {
  readonly key: string;
  readonly shortKey: string;
}

export interface DemoTenants {
  readonly workspaceIds: readonly string[];
  readonly keyOf: ReadonlyMap<Sender, DemoKey>;
}

/** Creates workspaces, users and keys through the API, as an administrator would. */
export async function makeTenants({ url, adminKey }: DemoServer): Promise<DemoTenants> {
  await ask(`${url}/api/v1/workspaces`, adminKey, { display_name: secondWorkspace });
  const workspaces = await ask<{ id: string; display_name: string }[]>(`${url}/api/v1/workspaces`, adminKey);
  const idOf = new Map(workspaces.map(({ id, display_name: name }) => [name, id]));
  for (const email of new Set(senders.map((sender) => sender.email))) {
    await ask(`${url}/api/v1/orgs/current/members`, adminKey, { email });
  }
  const keyOf = new Map<Sender, DemoKey>();
  for (const sender of senders) {
    const made = await ask<{ key: string; short_key: string }>(
      `${url}/api/v1/api-key`,
      adminKey,
      { description: sender.keyDescription, user_email: sender.email, permissions: ['runs:read', 'runs:write'] },
      { 'x-tenant-id': idOf.get(sender.workspace) },
    );
    keyOf.set(sender, { key: made.key, shortKey: made.short_key });
  }
  return { workspaceIds: [...idOf.values()], keyOf };
}
