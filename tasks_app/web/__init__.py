"""The console's pages: server-rendered; scripts only where a page is alive."""
