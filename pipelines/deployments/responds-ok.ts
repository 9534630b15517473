/** Whether the agent server at `url` responds. Never rejects. */
export async function respondsOk(url: string, signal: AbortSignal): Promise<boolean> {
  try {
    const response = await fetch(`${url}/ok`, { signal });
    await response.body?.cancel();
    return response.ok;
  } catch {
    return false;
  }
}
