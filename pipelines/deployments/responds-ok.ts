/** Whether the agent server at `url` responds. Follows no redirects, which untrusted code chooses. Never rejects. */
export async function respondsOk(url: string, signal: AbortSignal): Promise<boolean> {
  try {
    const response = await fetch(`${url}/ok`, { signal, redirect: 'manual' });
    await response.body?.cancel();
    return response.ok;
  } catch {
    return false;
  }
}
