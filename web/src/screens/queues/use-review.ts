import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useEffect } from 'react';
import { type Answer, ApiError, call } from '../../api/client.ts';

export type QueueItem = Answer<'get', '/api/v1/platform/annotation-queues/{queue_id}/items'>['items'][number];

const pageSize = 100;
const countPollMs = 10_000;
/** Maximum time after which a reservation is renewed; timers of browsers overflow at 25 days. */
const maxRenewalMs = 3_600_000;
const statuses = ['needs_my_review', 'needs_others_review', 'archived'] as const;

/**
 * Returns the items of a queue that the user has to review, oldest first, the shown item, and the actions on it. The
 * shown item is reserved, so that other reviewers do not get it.
 */
export function useReview({
  queueId,
  itemId,
  reservationMinutes,
  canReview,
  onShow,
}: {
  readonly queueId: string;
  /** Undefined: the oldest item. */
  readonly itemId: string | undefined;
  readonly reservationMinutes: number;
  readonly canReview: boolean;
  readonly onShow: (itemId: string | undefined) => void;
}) {
  const client = useQueryClient();
  const path = { queue_id: queueId };
  const pages = useInfiniteQuery({
    queryKey: ['queue-items', queueId],
    queryFn: ({ pageParam, signal }) =>
      call('get', '/api/v1/platform/annotation-queues/{queue_id}/items', {
        path,
        query: { status: 'needs_my_review', page_size: pageSize, cursor: pageParam ?? undefined },
        signal,
      }),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => (page.has_more ? page.next_cursor : undefined),
  });
  const counts = useQuery({
    queryKey: ['queue-counts', queueId],
    queryFn: async ({ signal }) => {
      const read = (status: (typeof statuses)[number]) =>
        call('get', '/api/v1/platform/annotation-queues/{queue_id}/items/count', { path, query: { status }, signal });
      const [mine, others, done] = await Promise.all(statuses.map(read));
      return { mine: mine?.count ?? 0, others: others?.count ?? 0, done: done?.count ?? 0 };
    },
    refetchInterval: countPollMs,
  });
  const items = pages.data?.pages.flatMap((page) => page.items) ?? [];
  const index = Math.max(
    0,
    items.findIndex(({ id }) => id === itemId),
  );
  const item = items[index];
  const refresh = () =>
    Promise.all([
      client.invalidateQueries({ queryKey: ['queue-items', queueId] }),
      client.invalidateQueries({ queryKey: ['queue-counts', queueId] }),
    ]);
  const setStatus = (id: string, body: { status: 'in_progress' | 'completed' | null; override_added_at?: string }) =>
    call('post', '/api/v1/annotation-queues/status/{queue_run_id}', { path: { queue_run_id: id }, body });
  const reservation = useQuery({
    queryKey: ['queue-reservation', item?.id],
    queryFn: () => setStatus(item?.id ?? '', { status: 'in_progress' }),
    enabled: canReview && item !== undefined,
    gcTime: 0,
    staleTime: 0,
    refetchInterval: ({ state }) => (state.error ? false : Math.min(reservationMinutes * 30_000, maxRenewalMs)),
  });
  // Runs that were added, or released by others, while the list was empty.
  const isOutdated = pages.isSuccess && items.length === 0 && (counts.data?.mine ?? 0) > 0;
  const { dataUpdatedAt } = counts;
  useEffect(() => {
    if (isOutdated && dataUpdatedAt > 0) void client.invalidateQueries({ queryKey: ['queue-items', queueId] });
  }, [isOutdated, dataUpdatedAt, client, queueId]);
  const isTaken = reservation.error instanceof ApiError && reservation.error.status === 409;
  useEffect(() => {
    // The item is no longer in the list of this user; the next one is shown.
    if (isTaken) void client.invalidateQueries({ queryKey: ['queue-items', queueId] });
  }, [isTaken, client, queueId]);

  const step = (offset: number) => {
    if (offset > 0 && index + offset >= items.length - 1 && pages.hasNextPage) void pages.fetchNextPage();
    onShow(items.length < 2 ? undefined : items.at((index + offset) % items.length)?.id);
  };
  // Leaving a run withdraws its review, so it must wait for the one that is being completed.
  const mutationKey = ['review', queueId];
  /** A key can be pressed before the state of a mutation is rendered. */
  const isLeaving = () => client.isMutating({ mutationKey }) > 0;
  const finish = useMutation({
    mutationKey,
    mutationFn: async ({ id, before }: { id: string; before: () => Promise<unknown> }) => {
      await before();
      await setStatus(id, { status: 'completed' });
    },
    // Another reviewer may have completed it.
    onError: refresh,
    onSuccess: () => {
      step(1);
      return refresh();
    },
  });
  const moveToEnd = useMutation({
    mutationKey,
    mutationFn: ({ id }: QueueItem) => {
      // Later than the last known item, even if the clock of the browser is behind.
      const last = Math.max(Date.now(), ...items.map((each) => Date.parse(each.effective_added_at) + 1));
      return setStatus(id, { status: null, override_added_at: new Date(last).toISOString() });
    },
    onSuccess: () => {
      step(1);
      return refresh();
    },
  });
  const skip = useMutation({
    mutationFn: async ({ item: { id }, offset }: { item: QueueItem; offset: 1 | -1 }) => {
      if (isLeaving()) return;
      step(offset);
      if (canReview) await setStatus(id, { status: null });
    },
  });
  const canStep = items.length > 1 && !finish.isPending && !moveToEnd.isPending;
  return { pages, counts, items, item, isTaken, reservation, finish, moveToEnd, skip, canStep, isLeaving };
}
