import { keepPreviousData, useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { callText, offsetPages, throwNotFound } from '../../api/client.ts';
import { parseExact } from '../../components/values/exact-json.ts';

const pageSize = 100;

export interface Example {
  readonly id: string;
  readonly inputs: Readonly<Record<string, unknown>>;
  readonly outputs?: Readonly<Record<string, unknown>> | null;
  readonly metadata?: Readonly<Record<string, unknown>> | null;
  readonly source_run_id?: string | null;
  readonly attachment_urls?: Readonly<Record<string, { readonly presigned_url?: string }>> | null;
  readonly created_at: string;
  readonly modified_at: string;
}

export interface ExampleQuery {
  /** A time or a tag. Undefined: the newest version. */
  readonly version: string | undefined;
  readonly split?: string | undefined;
  readonly text?: string | undefined;
}

interface ExamplePage {
  readonly as_of: string | undefined;
  readonly splits?: string[] | undefined;
  readonly full_text_contains?: string[] | undefined;
  readonly id?: string[];
  readonly limit: number;
  readonly offset: number;
}

/** Where examples are read: a dataset of the workspace, or a public link. Both return a JSON array. */
export interface ExampleSource {
  readonly key: readonly string[];
  readonly list: (page: ExamplePage, signal: AbortSignal) => Promise<string>;
}

export function createDatasetSource(datasetId: string): ExampleSource {
  return {
    key: ['dataset', datasetId],
    list: (page, signal) =>
      callText('get', '/api/v1/examples', {
        query: {
          ...page,
          dataset: datasetId,
          // The order of creation does not change when an example is edited.
          order: 'recently_created',
          select: [
            'inputs',
            'outputs',
            'metadata',
            'source_run_id',
            ...(page.id ? (['attachment_urls'] as const) : []),
          ],
        },
        signal,
      }),
  };
}

export function createSharedSource(shareToken: string): ExampleSource {
  return {
    key: ['shared-dataset', shareToken],
    list: (page, signal) =>
      callText('get', '/api/v1/public/{share_token}/examples', {
        path: { share_token: shareToken },
        query: page,
        signal,
      }),
  };
}

/** Reads the examples of a version page by page, in which numbers keep their digits. */
export function useExamples(source: ExampleSource, { version, split, text }: ExampleQuery, isEnabled = true) {
  return useInfiniteQuery({
    queryKey: [...source.key, 'examples', version, split, text],
    queryFn: async ({ pageParam, signal }) => {
      const page = {
        limit: pageSize,
        offset: pageParam,
        as_of: version,
        splits: split === undefined ? undefined : [split],
        full_text_contains: text === undefined ? undefined : [text],
      };
      return parseExact(await source.list(page, signal)) as Example[];
    },
    ...offsetPages(pageSize),
    placeholderData: keepPreviousData,
    enabled: isEnabled,
  });
}

/**
 * Reads an example of a version. While another version loads, the example stays unchanged, and an open form keeps its
 * content.
 */
export function useExample(source: ExampleSource, id: string, version: string | undefined, isEnabled = true) {
  return useQuery({
    queryKey: [...source.key, 'example', id, version],
    queryFn: async ({ signal }) => {
      const page = { id: [id], limit: 1, offset: 0, as_of: version };
      const [found] = parseExact(await source.list(page, signal)) as Example[];
      return found ?? throwNotFound(`This version of the dataset has no example ${id}.`);
    },
    enabled: isEnabled,
    placeholderData: keepPreviousData,
  });
}

export function listSplits({ metadata }: Example): readonly string[] {
  const splits = metadata?.dataset_split;
  return Array.isArray(splits) ? splits.map(String) : [];
}

export function omitSplits({ metadata }: Example): Readonly<Record<string, unknown>> {
  const { dataset_split: _, ...others } = metadata ?? {};
  return others;
}
