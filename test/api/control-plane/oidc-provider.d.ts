declare module 'oidc-provider' {
  import type { IncomingMessage, ServerResponse } from 'node:http';

  /** The parts of oidc-provider that the tests use. The package has no types. */
  export default class Provider {
    constructor(issuer: string, configuration: object);
    readonly Grant: new (
      properties: object,
    ) => {
      addOIDCScope(scope: string): void;
      rejectOIDCScope(scope: string): void;
      addResourceScope(resource: string, scope: string): void;
      save(): Promise<string>;
    };
    readonly Client: { find(id: string): Promise<{ redirectUris: string[] } | undefined> };
    callback(): (request: IncomingMessage, response: ServerResponse) => Promise<void>;
    interactionDetails(
      request: IncomingMessage,
      response: ServerResponse,
    ): Promise<{
      readonly prompt: { readonly name: string; readonly details: { readonly missingOIDCScope?: string[] } };
      readonly params: Readonly<Record<string, string>>;
      readonly session?: { readonly accountId: string };
      readonly grantId?: string;
    }>;
    interactionFinished(request: IncomingMessage, response: ServerResponse, result: object): Promise<void>;
    on(event: string, listener: (...values: unknown[]) => void): this;
    use(
      middleware: (context: { path: string; status: number; body: unknown }, next: () => Promise<void>) => unknown,
    ): this;
  }
}
