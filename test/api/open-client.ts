import { Client, type ClientConfig } from 'langsmith';
import type { ApiUnderTest } from './start-api.ts';

/** Options that every release of the SDK has. */
type Options = Omit<ClientConfig, 'cache'>;

/** Returns a client of the LangSmith SDK, or of the given release of it, that sends requests to a socket of the API. */
export async function openClient<Release = Client>(
  api: ApiUnderTest,
  apiKey: string,
  options: Options = {},
  Constructor: new (options: Options) => Release = Client as never,
): Promise<Release> {
  return new Constructor({ apiUrl: await api.listen(), apiKey, ...options });
}
