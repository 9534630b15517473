import { type FaultProxy, openFaultProxy } from '../../../crash/fault-proxy.ts';
import { type ErrorResponse, openFaultyStore } from './faulty-store.ts';

/** A proxy to a real store: a test decides which requests pass, and can run code at specific requests. */
export interface StoreProxy extends Pick<FaultProxy, 'stall' | 'away'> {
  readonly endpoint: string;
  /** Methods and paths of the requests that reached the store's side of the proxy. */
  readonly seen: readonly string[];
  /** Sets the response to all later requests; undefined lets these requests pass. */
  storm(fate: ErrorResponse): void;
  /** Makes the store accept all later requests without responding. */
  hang(): void;
  /**
   * Calls `act` once, for the first request whose method and path match; forwards the request when `act` has resolved.
   */
  when(recognises: RegExp, act: () => Promise<void> | void): void;
  /** Calls `act` after the store's response to the first matching request, before the client receives the response. */
  whenAnswered(recognises: RegExp, act: () => Promise<void> | void): void;
  /** Lets all requests pass again. */
  clear(): void;
  close(): Promise<void>;
}

interface Moment {
  readonly recognises: RegExp;
  readonly act: () => Promise<void> | void;
}

export async function openStoreProxy(store: string): Promise<StoreProxy> {
  let onRequest: Moment[] = [];
  let onResponse: Moment[] = [];
  let fate: ErrorResponse;
  let endHang: () => void = () => undefined;
  let hanging: Promise<void> | undefined;
  const take = (moments: Moment[], { method, url }: { method?: string | undefined; url?: string | undefined }) => {
    const index = moments.findIndex(({ recognises }) => recognises.test(`${method} ${url}`));
    return index < 0 ? undefined : moments.splice(index, 1)[0];
  };
  const httpProxy = await openFaultyStore(
    store,
    async (request) => {
      await take(onRequest, request)?.act();
      await hanging;
      return fate;
    },
    async (request) => take(onResponse, request)?.act(),
  );
  const { hostname, port } = new URL(httpProxy.endpoint);
  const tcp = await openFaultProxy([{ host: hostname, port: Number(port) }]);
  return {
    endpoint: `http://127.0.0.1:${tcp.ports[0]}`,
    seen: httpProxy.seen,
    stall: tcp.stall,
    away: tcp.away,
    storm(of) {
      fate = of;
    },
    hang() {
      hanging = new Promise((resolve) => {
        endHang = resolve;
      });
    },
    when: (recognises, act) => void onRequest.push({ recognises, act }),
    whenAnswered: (recognises, act) => void onResponse.push({ recognises, act }),
    clear() {
      onRequest = [];
      onResponse = [];
      fate = undefined;
      hanging = undefined;
      endHang();
      tcp.stall(false);
      tcp.away(false);
    },
    async close() {
      await tcp.close();
      await httpProxy.close();
    },
  };
}
