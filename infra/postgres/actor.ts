import { AsyncLocalStorage } from 'node:async_hooks';
import { userInfo } from 'node:os';
import type { Connection } from './connection.ts';

/** Who makes a change, for the audit log. The triggers of `schemas/postgres/0021_audit_logs.sql` read it. */
export interface Actor {
  /** `command`: the operator on the command line. */
  readonly kind: 'api_key' | 'session' | 'command';
  /** Id of the API key. Null on the command line. */
  readonly id: string | null;
  /** Email of the user, or name of the user of the operating system. */
  readonly name: string | null;
  /** Organisation of the actor. Null on the command line. */
  readonly organization_id: string | null;
  /** Address that the request came from. Null on the command line. */
  readonly ip: string | null;
}

const storage = new AsyncLocalStorage<Actor>();

/** Runs `work`. The audit log attributes its changes in Postgres to `actor`. */
export function runAsActor<Result>(actor: Actor, work: () => Result): Result {
  return storage.run(actor, work);
}

export function getActor(): Actor | undefined {
  return storage.getStore();
}

/** Returns the user of the operating system that runs a command. */
export function findCommandActor(): Actor {
  let name: string | null = null;
  try {
    name = userInfo().username;
  } catch {
    // A container may run under a user id without a name.
  }
  return { kind: 'command', id: null, name, organization_id: null, ip: null };
}

/** Tells the triggers who makes the changes of the transaction that is open on `connection`. */
export async function nameActor(connection: Pick<Connection, 'send'>, actor: Actor, timeoutMs: number): Promise<void> {
  await connection.send("SELECT set_config('runlake.actor', $1, true)", timeoutMs, [JSON.stringify(actor)]);
}
