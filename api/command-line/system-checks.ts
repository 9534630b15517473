import type { Config } from '../../infra/config/settings.ts';
import type { Explanation } from '../../infra/errors/explain-connection.ts';
import { isRunlakeError } from '../../infra/errors/runlake-error.ts';
import { createContentChecks, createServerChecks } from './doctor-checks.ts';
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

export interface CheckedSystem {
  readonly config: Config;
  readonly addresses: Partial<StoreAddresses>;
  readonly stores: Stores;
  readonly secretKey: string;
}

/** Runs the checks of `runlake doctor` of the servers that this installation uses, at the same time. */
export function checkSystem({ config, addresses, stores, secretKey }: CheckedSystem): Promise<SystemCheck[]> {
  const servers = createServerChecks(config, addresses, stores).map((server) =>
    inspect(server, (error) => explainPart(error, server)),
  );
  const contents = createContentChecks({ config, stores, secretKey }).map((each) => inspect(each));
  return Promise.all([...servers, ...contents]);
}

async function inspect(
  { name, check }: { readonly name: string; readonly check: () => Promise<string> },
  explain: (error: unknown) => Explanation | undefined = () => undefined,
): Promise<SystemCheck> {
  try {
    return { name, is_ok: true, message: await check(), remedy: null };
  } catch (error) {
    const own = isRunlakeError(error) ? { words: error.message, remedy: error.remedy } : undefined;
    const { words, remedy } = explain(error) ?? own ?? { words: 'the check failed', remedy: null };
    return { name, is_ok: false, message: words, remedy };
  }
}
