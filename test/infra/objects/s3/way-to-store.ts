import { type FaultProxy, openFaultProxy } from '../../../crash/fault-proxy.ts';
import { type Fate, openFaultyStore } from './faulty-store.ts';

/** The way from a client to a real store, on which a test decides what gets through, and is there when something does. */
export interface WayToStore extends Pick<FaultProxy, 'stall' | 'away'> {
  readonly endpoint: string;
  /** Methods and paths that came as far as the store's door. */
  readonly seen: readonly string[];
  /** What becomes of all requests from now on; undefined: they pass. */
  storm(fate: Fate): void;
  /** The store takes requests from now on and does not answer. */
  hang(): void;
  /** `act` is done when a request comes whose method and path `recognises` fits, once; it goes on when that has resolved. */
  when(recognises: RegExp, act: () => Promise<void> | void): void;
  /** The same when the store has answered it, before the client hears. */
  whenAnswered(recognises: RegExp, act: () => Promise<void> | void): void;
  /** Everything passes again. */
  clear(): void;
  close(): Promise<void>;
}

interface Moment {
  readonly recognises: RegExp;
  readonly act: () => Promise<void> | void;
}

export async function openWayToStore(store: string): Promise<WayToStore> {
  let asked: Moment[] = [];
  let answered: Moment[] = [];
  let fate: Fate;
  let letGo: () => void = () => undefined;
  let hanging: Promise<void> | undefined;
  const take = (moments: Moment[], { method, url }: { method?: string | undefined; url?: string | undefined }) => {
    const place = moments.findIndex(({ recognises }) => recognises.test(`${method} ${url}`));
    return place < 0 ? undefined : moments.splice(place, 1)[0];
  };
  const door = await openFaultyStore(
    store,
    async (request) => {
      await take(asked, request)?.act();
      await hanging;
      return fate;
    },
    async (request) => take(answered, request)?.act(),
  );
  const { hostname, port } = new URL(door.endpoint);
  const tcp = await openFaultProxy({ host: hostname, port: Number(port) });
  return {
    endpoint: `http://127.0.0.1:${tcp.port}`,
    seen: door.seen,
    stall: tcp.stall,
    away: tcp.away,
    storm(of) {
      fate = of;
    },
    hang() {
      hanging = new Promise((resolve) => {
        letGo = resolve;
      });
    },
    when: (recognises, act) => void asked.push({ recognises, act }),
    whenAnswered: (recognises, act) => void answered.push({ recognises, act }),
    clear() {
      asked = [];
      answered = [];
      fate = undefined;
      hanging = undefined;
      letGo();
      tcp.stall(false);
      tcp.away(false);
    },
    async close() {
      await tcp.close();
      await door.close();
    },
  };
}
